"""From a store's URL to the store."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lora.errors import InvalidStore
from lora.format import DEFAULT_LIMITS, Limits
from lora.store.file_objects import FileObjects
from lora.store.file_store import FileStore
from lora.store.objects import ObjectStore
from lora.store.options import S3Options
from lora.store.protocol import AdapterStore

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SEGMENT = re.compile(r"[A-Za-z0-9!_.*'()=+-]+")


def open_store(url: str, s3: S3Options | None = None, *, limits: Limits = DEFAULT_LIMITS) -> AdapterStore:
    """The store at "file:///folder" or "s3://bucket/prefix". It is not asked for anything yet.

    Raises InvalidStore for another form, a prefix that is no plain path, or `s3` with a folder.
    """
    place = _parsed(url, s3)
    if isinstance(place, Path):
        return FileStore(place, limits=limits)
    from lora.store.s3_store import S3Store  # here: boto3 takes long to import, a folder needs none of it

    return S3Store(*place, s3 or S3Options(), limits=limits)


def open_objects(url: str, s3: S3Options | None = None) -> ObjectStore:
    """The plain objects of the store that open_store gives for the same. Raises InvalidStore."""
    place = _parsed(url, s3)
    if isinstance(place, Path):
        return FileObjects(place)
    from lora.store.s3_objects import S3Objects  # here: boto3 takes long to import, a folder needs none of it

    return S3Objects(*place, s3 or S3Options())


def check_store(url: str, s3: S3Options | None = None) -> None:
    """Raises what open_store would raise, and opens nothing."""
    _parsed(url, s3)


def _parsed(url: str, s3: S3Options | None) -> Path | tuple[str, str]:
    scheme, _, rest = url.partition("://")
    if scheme == "s3":
        return _place(rest)
    if scheme != "file":
        raise InvalidStore("url", "file:///folder or s3://bucket/prefix")
    if s3 is not None:
        raise InvalidStore("url", "s3://bucket/prefix, since there are S3 options")
    return _folder(url)


def _folder(url: str) -> Path:
    parts = urlsplit(url)
    folder = Path(unquote(parts.path))
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or "\0" in str(folder):
        raise InvalidStore("url", "file:///folder on this machine")
    if not folder.is_absolute() or ".." in folder.parts:
        raise InvalidStore("url", "file:// and an absolute path without '..'")
    return folder


def _place(rest: str) -> tuple[str, str]:
    """Bucket, and prefix of all keys: empty, or with a slash at its end."""
    bucket, _, prefix = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidStore("url", "s3:// and the name of a bucket: lower-case letters, digits, '.' and '-'")
    prefix = prefix.removesuffix("/")
    segments = prefix.split("/") if prefix else []
    if not all(_SEGMENT.fullmatch(segment) and segment.strip(".") for segment in segments):
        raise InvalidStore("url", "a prefix of plain names, none empty, '.' or '..'")
    return bucket, "".join(f"{segment}/" for segment in segments)
