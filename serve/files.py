"""Files of clients: rows in the database, bytes in the object store under files/<id>. Knows no HTTP.

A row is there before the bytes and goes after them, so nothing in the store is without its row, whoever dies
in between; what was given up half way is removed by clean().
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import IO

import db.files
from db.database import Database
from db.errors import NotFound
from db.rows import FileRow
from lora.background import BackgroundThreads
from lora.errors import NoObject
from lora.store import ObjectStore
from serve.errors import InvalidField, UnknownFile
from serve.ids import uuid7
from serve.protocol.files import FileQuery, may_be_id

BATCH_LIFETIME = timedelta(days=30)
"""Of what is uploaded for batches, where the client asks for no other."""
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """What a client sends: a file with its name."""

    filename: str
    content: IO[bytes]
    lifetime: timedelta | None


class Files:
    """The files of all tenants, each shown to its own alone. The threads are the caller's."""

    def __init__(self, database: Database, objects: ObjectStore, threads: BackgroundThreads) -> None:
        self._database = database
        self._objects = objects
        self._threads = threads

    async def create(self, tenant: str, upload: Upload) -> FileRow:
        """Keep a file for batches. Raises StoreUnavailable or DatabaseAway; nobody sees half of it then."""
        file_id = f"file-{uuid7().replace('-', '')}"
        lifetime = upload.lifetime or BATCH_LIFETIME

        def keep() -> FileRow:
            db.files.begin(
                self._database,
                file_id,
                tenant=tenant,
                filename=upload.filename,
                purpose="batch",
                lifetime=lifetime,
            )
            written = self._objects.put(key_of(file_id), upload.content)
            return db.files.complete(self._database, file_id, written.bytes, written.sha256)

        return await self._threads.run(keep)

    async def get(self, tenant: str, file_id: str) -> FileRow:
        """Raises UnknownFile or DatabaseAway."""
        if not may_be_id(file_id):
            raise UnknownFile(file_id)
        try:
            return await asyncio.to_thread(db.files.get, self._database, tenant, file_id)
        except NotFound as error:
            raise UnknownFile(file_id) from error

    async def page(self, tenant: str, query: FileQuery) -> list[FileRow]:
        """One file more than was asked for, where there are so many. Raises InvalidField or DatabaseAway."""
        if query.after is not None:
            try:
                await self.get(tenant, query.after)
            except UnknownFile as error:
                raise InvalidField(f"after: {error}", "after") from error
        wanted = query.model_dump() | {"limit": query.limit + 1}
        return await asyncio.to_thread(lambda: db.files.page(self._database, tenant, **wanted))

    async def remove(self, tenant: str, file_id: str) -> None:
        """Hide it now; its bytes go with the next clean(). Raises UnknownFile or DatabaseAway."""
        if not may_be_id(file_id) or not await asyncio.to_thread(
            db.files.remove, self._database, tenant, file_id
        ):
            raise UnknownFile(file_id)

    async def content(self, row: FileRow) -> AsyncIterator[bytes]:
        """The bytes, in pieces. Raises NoObject or StoreUnavailable."""
        key, sent = key_of(row.id), 0
        while sent < row.bytes:
            piece = await self._threads.run(partial(self._objects.read, key, sent, _PIECE))
            if not piece:
                raise NoObject(key)
            sent += len(piece)
            yield piece

    def clean(self) -> None:
        """Delete what was removed, has expired, or was given up half way. Blocks.

        Raises DatabaseAway or StoreUnavailable.
        """
        for file_id in db.files.gone(self._database):
            self._objects.delete(key_of(file_id))
            db.files.forget(self._database, file_id)


def key_of(file_id: str) -> str:
    """Where the bytes of a file are."""
    return f"files/{file_id}"
