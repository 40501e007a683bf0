"""Adapter stores as the contract tests meet them: the store, and a hand that reaches behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from lora.store import AdapterStore, open_store
from lora.store.options import S3Options
from tests.contract.s3_server import S3Server

Spoil = Callable[[bytes], bytes | None]
"""The new content of a file; None takes it away."""
WEIGHTS = "adapter_model.safetensors"


def altered(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def lost(content: bytes) -> None:
    return None


class Shelf(Protocol):
    """`again` is what a second process opens the store with."""

    store: AdapterStore
    again: tuple[str, S3Options | None]

    def spoil(self, digest: str, how: Spoil) -> None:
        """Change the weights file at rest."""

    def unmark(self, digest: str) -> None:
        """Take the marker away, as if the writer had died before it."""

    def pieces(self) -> int:
        """How many files of adapters there are, complete or not."""

    def quarantined(self) -> int:
        """How many copies were moved aside."""

    def take_away(self) -> None:
        """The store answers nothing any more."""


class FileShelf:
    def __init__(self, root: Path) -> None:
        self._root = root
        self.again: tuple[str, S3Options | None] = (root.as_uri(), None)
        self.store = open_store(*self.again)

    def spoil(self, digest: str, how: Spoil) -> None:
        file = self._place(digest) / WEIGHTS
        if (content := how(file.read_bytes())) is None:
            file.unlink()
        else:
            file.write_bytes(content)

    def unmark(self, digest: str) -> None:
        (self._place(digest) / "complete").unlink()

    def pieces(self) -> int:
        return sum(path.is_file() and path.name != "complete" for path in self._root.glob("adapters/**/*"))

    def quarantined(self) -> int:
        return len(list(self._root.glob("quarantine/*")))

    def take_away(self) -> None:
        self._root.rename(self._root.with_name("elsewhere"))
        self._root.write_text("no folder")

    def _place(self, digest: str) -> Path:
        return self._root / "adapters" / digest.removeprefix("sha256:")


class S3Shelf:
    def __init__(self, server: S3Server) -> None:
        self.server, self.client, self.bucket = server, server.client(), f"adapters-{uuid4().hex[:8]}"
        self.client.create_bucket(Bucket=self.bucket)
        self.again: tuple[str, S3Options | None] = (f"s3://{self.bucket}/some/prefix", server.options)
        self.store = open_store(*self.again)

    def keys(self, folder: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"some/prefix/{folder}"
        )
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def spoil(self, digest: str, how: Spoil) -> None:
        (key,) = [key for key in self.keys(f"adapters/{_hex(digest)}") if key.endswith(WEIGHTS)]
        content = how(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        if content is None:
            self.client.delete_object(Bucket=self.bucket, Key=key)
        else:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def unmark(self, digest: str) -> None:
        for key in self.keys(f"complete/{_hex(digest)}"):
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def pieces(self) -> int:
        return len(self.keys("adapters/"))

    def quarantined(self) -> int:
        return len({key.split("/")[-2] for key in self.keys("quarantine/")})

    def take_away(self) -> None:
        self.server.stop()


def fetch_again(url: str, s3: S3Options | None, digest: str, into: Path) -> str:
    """What another process does."""
    return str(open_store(url, s3).fetch(digest, into))


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")
