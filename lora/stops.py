"""The local kill switch: a small file that names the adapter versions which this machine serves no more.

Operators write it, the gateways of the machine read it again and again; neither needs the database. It knows
digests only, not the ids by which people call them.
"""

import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from lora.digest import check_digest, is_digest
from lora.errors import StopsUnusable

STOPS_FILE = "stops.json"

logger = logging.getLogger(__name__)


class StopsFile:
    """One file, always whole; several processes may write it, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: frozenset[str] = frozenset()
        self._damaged = False

    def read(self) -> frozenset[str]:
        """The stopped digests; none where there is no file. Raises StopsUnusable."""
        try:
            tree = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError) as error:
            raise StopsUnusable(self._path, str(error)) from error
        digests = tree.get("digests") if isinstance(tree, dict) else None
        if not isinstance(digests, list) or not all(isinstance(d, str) and is_digest(d) for d in digests):
            raise StopsUnusable(self._path, 'it is not {"digests": ["sha256:...", ...]}')
        return frozenset(digests)

    def latest(self) -> frozenset[str]:
        """read() that does not fail: while the file is damaged, the last good stops; the log says so once."""
        try:
            self._last, self._damaged = self.read(), False
        except StopsUnusable as error:
            if not self._damaged:
                logger.error("%s; the last good stops hold", error, extra={"action": "stops_damaged"})
            self._damaged = True
        return self._last

    def add(self, digest: str) -> None:
        """Stop a version. Raises InvalidDigest, StopsUnusable."""
        self._change(lambda stops: stops | {check_digest(digest)})

    def remove(self, digest: str) -> bool:
        """Take a stop back; False if there was none. Raises StopsUnusable."""
        return digest in self._change(lambda stops: stops - {digest})

    def _change(self, edit: Callable[[Set[str]], Set[str]]) -> frozenset[str]:
        """Replace the file in one step; returns what it held before."""
        try:
            with _locked(self._path.parent):
                before = self.read()
                self._write(edit(before))
        except OSError as error:
            raise StopsUnusable(self._path, str(error)) from error
        return before

    def _write(self, stops: Set[str]) -> None:
        draft = self._path.with_name(f".{self._path.name}.{uuid4().hex}.tmp")
        try:
            with draft.open("w", encoding="utf-8") as file:
                json.dump({"digests": sorted(stops)}, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other writers out, and flush what was renamed in the folder meanwhile."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
        os.fsync(handle)
    finally:
        os.close(handle)
