"""The last good registry of a machine on its disk, for a process that starts while the database is away."""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from db.rows import AdapterRow, BaseModelRow, EndpointRow, RegistryRows

_Row = TypeVar("_Row", BaseModelRow, EndpointRow, AdapterRow)

REGISTRY_FILE = "registry.json"

logger = logging.getLogger(__name__)


class KeptRows:
    """One file, always whole; the processes of a machine may share it, the last writer wins."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, rows: RegistryRows) -> None:
        """Keep the rows. Best effort: a disk that refuses is logged, since routing goes on without it."""
        draft = self._path.with_name(f".{self._path.name}.{uuid4().hex}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(asdict(rows), default=datetime.isoformat), encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            logger.warning("registry not kept on disk: %s", error, extra={"action": "registry_not_kept"})

    def read(self) -> tuple[RegistryRows, float] | None:
        """The rows and their age in seconds; None where there are none that can be read."""
        try:
            age_s = max(0.0, time.time() - self._path.stat().st_mtime)
            return _rows(json.loads(self._path.read_text(encoding="utf-8"))), age_s
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("kept registry not readable: %r", error, extra={"action": "registry_not_kept"})
            return None


def _rows(tree: Mapping[str, Any]) -> RegistryRows:
    return RegistryRows(
        epoch=int(tree["epoch"]),
        base_models=tuple(_row(BaseModelRow, fields) for fields in tree["base_models"]),
        endpoints=tuple(_row(EndpointRow, fields) for fields in tree["endpoints"]),
        adapters=tuple(_row(AdapterRow, fields) for fields in tree["adapters"]),
    )


def _row(kind: type[_Row], fields: Mapping[str, Any]) -> _Row:
    return kind(**{**fields, "created_at": datetime.fromisoformat(fields["created_at"])})
