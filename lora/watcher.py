"""Keeps the newest registry snapshot of a process: woken by notifications, and polling because they get lost.

With the source away it keeps the last good snapshot and says how old it is; one that starts meanwhile begins
with what was last kept on this machine. The local kill switch is followed on a thread of its own, so that a
database which hangs cannot delay it.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from db.rows import RegistryRows
from lora.kept_rows import KeptRows
from lora.registry import RegistrySnapshot
from lora.stops import StopsFile

logger = logging.getLogger(__name__)

_STALE_AFTER_POLLS = 3


class RegistrySource(Protocol):
    """Where the registry is read. Calls block; any of them may raise, and is then tried again."""

    def version(self) -> tuple[int, str]:
        """Epoch and mark; equal ones mean equal rows."""

    def snapshot(self, since: RegistryRows | None = None) -> RegistryRows:
        """All rows; `since` is an earlier answer, which spares reading what has not changed."""

    def wait(self, timeout_s: float) -> bool:
        """True when the registry may have changed; False after `timeout_s`."""

    def close(self) -> None:
        """A wait in another thread ends soon."""


class RegistryWatcher:
    """One thread that follows the registry, one that follows the local kill switch.

    `on_change` is called with each new snapshot, on either thread. `kept` remembers the rows for a start
    without the source. `stops` names the versions that answer nobody here. Every attribute may be read from
    any thread.
    """

    def __init__(
        self,
        source: RegistrySource,
        on_change: Callable[[RegistrySnapshot], None] | None = None,
        *,
        poll_s: float = 2.0,
        kept: KeptRows | None = None,
        stops: StopsFile | None = None,
    ) -> None:
        self._source, self._on_change, self._poll_s = source, on_change, poll_s
        self._kept, self._stops = kept, stops
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._follow, name="registry-watcher", daemon=True)]
        if stops is not None:
            self._threads.append(
                threading.Thread(target=self._follow_stops, args=(stops,), name="local-stops", daemon=True)
            )
        self._blocked: frozenset[str] = frozenset()
        self._rows: RegistryRows | None = None
        self._snapshot: RegistrySnapshot | None = None
        self._confirmed = False  # whether the source itself has been read
        self._seen_at = time.monotonic()

    def start(self) -> None:
        """Read the registry once, then follow it. Raises what the source raises unless something is kept."""
        if self._stops is not None:
            self._heed(self._stops.latest())
        try:
            self._refresh()
        except Exception as error:  # whatever it is, what is kept serves better than nothing
            if not self._recall():
                raise
            self._warn(error)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop following; the last snapshot stays."""
        self._stop.set()
        self._source.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    @property
    def snapshot(self) -> RegistrySnapshot:
        """The last good snapshot. Raises RuntimeError before start()."""
        if self._snapshot is None:
            raise RuntimeError("the registry has not been read: start() the watcher first")
        return self._snapshot

    @property
    def age_s(self) -> float:
        """Seconds since the snapshot was last known to be the registry's newest."""
        return time.monotonic() - self._seen_at

    @property
    def stale(self) -> bool:
        """Whether several polls in a row have failed, or none has succeeded in this process."""
        return not self._confirmed or self.age_s > _STALE_AFTER_POLLS * self._poll_s

    @property
    def local_stops(self) -> list[str]:
        """Digests that the local kill switch holds back here."""
        return sorted(self._blocked)

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._wait()
            if self._stop.is_set():
                return
            try:
                self._refresh()
            except Exception as error:  # this thread must outlive every failure of the source
                self._warn(error)

    def _follow_stops(self, stops: StopsFile) -> None:
        while not self._stop.wait(self._poll_s):
            try:
                self._heed(stops.latest())
            except Exception:  # this thread must outlive every failure of on_change
                logger.exception("a change of the local stops was not told to all")

    def _heed(self, stops: frozenset[str]) -> None:
        with self._lock:
            if stops == self._blocked:
                return
            self._blocked = stops
            logger.warning(
                "local stops: %s", ", ".join(sorted(stops)) or "none", extra={"action": "local_stops"}
            )
            self._publish()

    def _warn(self, error: Exception) -> None:
        logger.warning(
            "registry not read (%s); serving by epoch %d", error, self.snapshot.epoch,
            extra={"action": "registry_away", "age_s": round(self.age_s, 1)},
        )  # fmt: skip

    def _wait(self) -> None:
        try:
            self._source.wait(self._poll_s)
        except Exception:  # as above; polling goes on without notifications
            logger.debug("registry notifications lost", exc_info=True)
            self._stop.wait(self._poll_s)

    def _refresh(self) -> None:
        began = time.monotonic()
        rows = self._rows if self._confirmed else None
        if rows is None or self._source.version() != (rows.epoch, rows.mark):
            rows = self._source.snapshot(rows)
            if self._kept is not None:
                self._kept.write(rows)
        with self._lock:
            if rows is not self._rows:
                self._rows = rows
                self._publish()
            self._confirmed, self._seen_at = True, began

    def _recall(self) -> bool:
        """Begin with the rows kept on this machine; False where there are none."""
        found = None if self._kept is None else self._kept.read()
        if found is None:
            return False
        with self._lock:
            self._rows, age_s = found
            self._seen_at = time.monotonic() - age_s
            self._publish()
        return True

    def _publish(self) -> None:
        """Called with the lock held, so that snapshots follow one another in order."""
        if self._rows is None:
            return
        self._snapshot = RegistrySnapshot.from_rows(self._rows, blocked=self._blocked)
        if self._on_change is not None:
            self._on_change(self._snapshot)
