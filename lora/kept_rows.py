"""The last good registry of a machine on its disk, for a process that starts while the database is away."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
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
    """One file, always whole; the processes of a machine may share it, the last writer wins.

    Rows never change and most of them come again with the next change of the registry: their text is kept.
    For one thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts: dict[int, tuple[object, str]] = {}

    def write(self, rows: RegistryRows) -> None:
        """Keep the rows. Best effort: a disk that refuses is logged, since routing goes on without it."""
        draft = self._path.with_name(f".{self._path.name}.{uuid4().hex}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(self._text(rows), encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            logger.warning("registry not kept on disk: %s", error, extra={"action": "registry_not_kept"})

    def _text(self, rows: RegistryRows) -> str:
        before, self._texts = self._texts, {}
        tables: dict[str, Sequence[BaseModelRow | EndpointRow | AdapterRow]] = {
            "base_models": rows.base_models,
            "endpoints": rows.endpoints,
            "adapters": rows.adapters,
        }
        parts = [f'"epoch": {rows.epoch}', f'"mark": {json.dumps(rows.mark)}']
        for name, table in tables.items():
            lines = ",\n".join(self._line(row, before) for row in table)
            parts.append(f'"{name}": [\n{lines}\n]')
        return "{" + ",\n".join(parts) + "}\n"

    def _line(
        self, row: BaseModelRow | EndpointRow | AdapterRow, before: dict[int, tuple[object, str]]
    ) -> str:
        """The row as JSON; `before` holds the texts of the last time, by the identity of the row."""
        known = before.get(id(row))  # the row is held beside its text, so no other one can have its identity
        text = known[1] if known else json.dumps(asdict(row), default=datetime.isoformat)
        self._texts[id(row)] = (row, text)
        return text

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
        mark=str(tree["mark"]),
        base_models=tuple(_row(BaseModelRow, fields) for fields in tree["base_models"]),
        endpoints=tuple(_row(EndpointRow, fields) for fields in tree["endpoints"]),
        adapters=tuple(_row(AdapterRow, fields) for fields in tree["adapters"]),
    )


def _row(kind: type[_Row], fields: Mapping[str, Any]) -> _Row:
    return kind(**{**fields, "created_at": datetime.fromisoformat(fields["created_at"])})
