"""Files as clients see them: the shapes for the OpenAPI document, and how rows become them.

Times are in Unix seconds.
"""

from typing import Any, Literal

from pydantic import with_config
from typing_extensions import TypedDict

from db.rows import FilePurpose, FileRow
from serve.answers.schema import CLOSED


@with_config(CLOSED)
class File(TypedDict):
    """One file."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: FilePurpose
    status: Literal["processed"]
    status_details: None


@with_config(CLOSED)
class FileList(TypedDict):
    """A page of files."""

    object: Literal["list"]
    data: list[File]
    first_id: str | None
    last_id: str | None
    has_more: bool


@with_config(CLOSED)
class FileDeleted(TypedDict):
    """A file is gone."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


def file_card(row: FileRow) -> dict[str, Any]:
    """A file as clients see it."""
    return {
        "id": row.id,
        "object": "file",
        "bytes": row.bytes,
        "created_at": int(row.created_at.timestamp()),
        "expires_at": None if row.expires_at is None else int(row.expires_at.timestamp()),
        "filename": row.filename,
        "purpose": row.purpose,
        "status": "processed",
        "status_details": None,
    }
