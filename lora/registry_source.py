"""The registry in the database, as the watcher reads it."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import db.registry
from db.database import Database
from db.errors import DatabaseAway
from db.notify import Listener
from db.rows import RegistryRows

_CHECKOUT_S = 2.0
_T = TypeVar("_T")


class DatabaseSource:
    """Reads through a pool of one connection and listens on another, direct one. Opened on first use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._listener: Listener | None = None
        self._closed = False

    def version(self) -> tuple[int, str]:
        """Raises DatabaseAway."""
        return self._read(db.registry.version)

    def snapshot(self, since: RegistryRows | None = None) -> RegistryRows:
        """Raises DatabaseAway."""
        return self._read(lambda database: db.registry.snapshot(database, since))

    def wait(self, timeout_s: float) -> bool:
        """Wait for a change, at most `timeout_s`. Raises DatabaseAway; the next call connects anew."""
        listener = self._listen()
        try:
            return listener.wait(timeout_s)
        except DatabaseAway:
            self._forget(listener)
            raise

    def close(self) -> None:
        """Close both connections; a wait in another thread ends."""
        with self._lock:
            self._closed = True
            listener, self._listener = self._listener, None
            database, self._database = self._database, None
        if listener is not None:
            listener.close()
        if database is not None:
            database.close()

    def _read(self, query: Callable[[Database], _T]) -> _T:
        database = self._pool()
        try:
            return query(database)
        except DatabaseAway:
            self._drop(database)
            raise

    def _drop(self, database: Database) -> None:
        """A new pool connects at once; an old one waits longer from try to try."""
        with self._lock:
            if self._database is database:
                self._database = None
        database.close()

    def _pool(self) -> Database:
        with self._lock:
            self._check_open()
            if self._database is None:
                self._database = Database(self._url, min_size=1, max_size=1, timeout_s=_CHECKOUT_S)
            return self._database

    def _listen(self) -> Listener:
        with self._lock:
            self._check_open()
            if self._listener is None:
                self._listener = Listener(self._url)
            return self._listener

    def _forget(self, listener: Listener) -> None:
        with self._lock:
            if self._listener is listener:
                self._listener = None
        with suppress(DatabaseAway):
            listener.close()

    def _check_open(self) -> None:
        if self._closed:
            raise DatabaseAway("the registry's connections are closed")
