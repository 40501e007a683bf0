"""Reading a form with one file: the file goes to the disk as it comes, the fields become a tree."""

import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import IO, Any

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from serve.errors import BodyTooLarge, InvalidBody, InvalidField

_FIELDS = 16
_OVERHEAD = 64 << 10
"""Bytes of a form beside its file."""
_NESTED = re.compile(r"(\w+)\[(\w+)\]")

Form = dict[str, Any]


@contextlib.asynccontextmanager
async def read_form(request: Request, max_bytes: int) -> AsyncIterator[tuple[Form, IO[bytes]]]:
    """The fields, with the name of the file under "file", and the file, which is closed at the end.

    a[b] in a field's name is b in a. Raises InvalidBody, InvalidField, or BodyTooLarge before reading on.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise InvalidBody("Unsupported Media Type: Only 'multipart/form-data' is allowed")
    parser = MultiPartParser(
        request.headers, _bounded(request, max_bytes + _OVERHEAD, max_bytes), max_files=1, max_fields=_FIELDS
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidBody(f"the form cannot be read: {error.message}") from error
    try:
        yield _tree(form, max_bytes)
    finally:
        await form.close()


async def _bounded(request: Request, most: int, allowed: int) -> AsyncGenerator[bytes, None]:
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise BodyTooLarge(allowed)
        yield part


def _tree(form: FormData, max_bytes: int) -> tuple[Form, IO[bytes]]:
    fields: Form = {}
    found: UploadFile | None = None
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if name != "file":
                raise InvalidField(f"{name} is a file; allowed: file", name)
            found, value = value, value.filename or ""
        nested = _NESTED.fullmatch(name)
        place = fields.setdefault(nested[1], {}) if nested else fields
        last = nested[2] if nested else name
        if not isinstance(place, dict) or last in place:
            raise InvalidField(f"{name} is given twice", name)
        place[last] = value
    if found is None:
        raise InvalidField("file is missing; a part with a filename is expected", "file")
    if (found.size or 0) > max_bytes:
        raise BodyTooLarge(max_bytes)
    return fields, found.file
