"""Objects under one prefix of an S3 bucket, and the border where boto3's errors become ours.

Nothing of an error's own text is passed on: it may quote what was signed. Knows no adapters.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from s3transfer.exceptions import RetriesExceededError

from lora.errors import StoreUnavailable
from lora.store.local_copy import Spoiled
from lora.store.options import S3Options

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

PART_BYTES = 8 << 20
"""Larger files travel in parts of this size."""
_CONNECT_S = 5.0
_THREADS = 4
_CUT_OFF = (IncompleteReadError, ReadTimeoutError, ResponseStreamingError)


class NoSuchObject(Exception):
    """There is nothing under the key. Never leaves this package."""


class _BehindTheEnd(Exception):
    """The object has no byte of the part that was asked for."""


@dataclass(frozen=True, slots=True)
class Item:
    """One object. `key` is without the prefix; `bytes` is its size, `modified` has a time zone."""

    key: str
    bytes: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """An upload in parts that was neither completed nor aborted."""

    key: str
    id: str
    begun: datetime


class Bucket:
    """Keys are relative to the prefix. Methods may be called from any thread and raise StoreUnavailable."""

    def __init__(self, name: str, prefix: str, s3: S3Options) -> None:
        self._name, self._prefix, self._attempts = name, prefix, s3.attempts
        self._sums = {"ChecksumAlgorithm": "SHA256"} if s3.checksums else {}
        self._transfer = TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=PART_BYTES,
            max_concurrency=_THREADS,
            num_download_attempts=s3.attempts,
        )
        with _translated():
            self._client = _client(s3)

    @property
    def url(self) -> str:
        """As open_store takes it."""
        return f"s3://{self._name}/{self._prefix}".removesuffix("/")

    def upload(self, file: Path, key: str) -> None:
        """Write a file, in parts where it is large; an interrupted one leaves nothing that can be read."""
        with file.open("rb") as content:
            self.upload_open(content, key)

    def upload_open(self, content: IO[bytes], key: str) -> None:
        """The same of an open file from where it stands; boto3 closes it."""
        with _translated():
            self._client.upload_fileobj(
                content, self._name, self._prefix + key, ExtraArgs=dict(self._sums), Config=self._transfer
            )

    def download(self, key: str, file: Path) -> None:
        """Raises NoSuchObject, or Spoiled where the server's own checksum does not hold."""
        with file.open("wb") as content:
            self.download_open(key, content)

    def download_open(self, key: str, content: IO[bytes]) -> None:
        """The same into an open file, which is empty."""
        with _translated():
            self._client.download_fileobj(self._name, self._prefix + key, content, Config=self._transfer)

    def write(self, key: str, content: bytes) -> None:
        """Write a small object in one step."""
        with _translated():
            self._client.put_object(
                Bucket=self._name,
                Key=self._prefix + key,
                Body=content,
                **self._sums,  # type: ignore[arg-type]
            )

    def read(self, key: str) -> bytes:
        """A small object. Raises NoSuchObject, Spoiled."""
        return self._read(key, {})

    def read_part(self, key: str, start: int, size: int) -> bytes:
        """Up to `size` bytes from `start` on; none behind the end. Raises NoSuchObject."""
        try:
            return self._read(key, {"Range": f"bytes={start}-{start + size - 1}"})
        except _BehindTheEnd:
            return b""

    def _read(self, key: str, part: dict[str, Any]) -> bytes:
        with _translated():
            for attempt in range(1, self._attempts + 1):
                try:
                    answer = self._client.get_object(Bucket=self._name, Key=self._prefix + key, **part)
                    return answer["Body"].read()
                except _CUT_OFF:  # after the headers nobody else tries again
                    if attempt == self._attempts:
                        raise
        raise AssertionError("attempts is at least 1")

    def items(self, folder: str, at_most: int | None = None) -> list[Item]:
        """Objects whose key begins with `folder`, in order of key."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._name,
            Prefix=self._prefix + folder,
            PaginationConfig={} if at_most is None else {"MaxItems": at_most},
        )
        with _translated():
            return [
                Item(entry["Key"].removeprefix(self._prefix), entry["Size"], entry["LastModified"])
                for page in pages
                for entry in page.get("Contents", ())
            ]

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""
        with _translated():
            self._client.delete_object(Bucket=self._name, Key=self._prefix + key)

    def move(self, key: str, target: str) -> None:
        """Copy within the bucket, then remove. Raises NoSuchObject."""
        source = {"Bucket": self._name, "Key": self._prefix + key}
        with _translated():
            self._client.copy(source, self._name, self._prefix + target, Config=self._transfer)  # type: ignore[arg-type]
        self.remove(key)

    def open_uploads(self, folder: str) -> list[OpenUpload]:
        """Uploads in parts under `folder` that have not come to their end."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._name, Prefix=self._prefix + folder
        )
        with _translated():
            return [
                OpenUpload(entry["Key"].removeprefix(self._prefix), entry["UploadId"], entry["Initiated"])
                for page in pages
                for entry in page.get("Uploads", ())
            ]

    def abort(self, upload: OpenUpload) -> None:
        """Give up an upload in parts; what came of it is freed."""
        with _translated():
            self._client.abort_multipart_upload(
                Bucket=self._name, Key=self._prefix + upload.key, UploadId=upload.id
            )


def _client(s3: S3Options) -> "S3Client":
    sums: Literal["when_supported", "when_required"] = "when_supported" if s3.checksums else "when_required"
    config = Config(
        connect_timeout=min(_CONNECT_S, s3.timeout_s),
        read_timeout=s3.timeout_s,
        retries={"mode": "standard", "total_max_attempts": s3.attempts},
        s3={"addressing_style": s3.style},
        request_checksum_calculation=sums,
        response_checksum_validation=sums,
    )
    return Session().client("s3", endpoint_url=s3.endpoint_url, region_name=s3.region, config=config)


@contextmanager
def _translated() -> Iterator[None]:
    """No cause is kept on purpose: a traceback would print boto3's text."""
    try:
        yield
    except FlexibleChecksumError:
        raise Spoiled("it does not have the checksum it was written with") from None
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if code in ("NoSuchKey", "NoSuchUpload", "404"):
            raise NoSuchObject from None
        if code == "InvalidRange":
            raise _BehindTheEnd from None
        raise StoreUnavailable(f"the server says {code}") from None
    except RetriesExceededError as error:
        raise StoreUnavailable(type(error.last_exception).__name__) from None
    except (BotoCoreError, Boto3Error) as error:
        raise StoreUnavailable(type(error).__name__) from None
