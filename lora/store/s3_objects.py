"""Objects in an S3 bucket, or in what speaks its protocol: there a write is seen whole or not at all."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import IO

from lora.errors import DamagedObject, NoObject
from lora.store.bucket import Bucket, NoSuchObject
from lora.store.local_copy import Spoiled
from lora.store.objects import OBJECTS, Content, StoredObject, check_key, check_prefix, content_of
from lora.store.options import S3Options
from lora.store.protocol import ABANDONED_S


class S3Objects:
    """An ObjectStore: objects/<key> below the prefix."""

    def __init__(self, bucket: str, prefix: str, s3: S3Options) -> None:
        self._bucket = Bucket(bucket, prefix, s3)

    def put(self, key: str, content: IO[bytes]) -> Content:
        place, written = OBJECTS + check_key(key), content_of(content)
        content.seek(0)
        self._bucket.upload_open(content, place)
        return written

    def fetch(self, key: str, into: IO[bytes], sha256: str) -> None:
        place = OBJECTS + check_key(key)
        try:
            self._bucket.download_open(place, into)
        except NoSuchObject:
            raise NoObject(key) from None
        except Spoiled:
            raise DamagedObject(key, "another one by the server's own count", sha256) from None
        found = content_of(into).sha256
        if found != sha256:
            raise DamagedObject(key, found, sha256)

    def read(self, key: str, start: int, size: int) -> bytes:
        try:
            return self._bucket.read_part(OBJECTS + check_key(key), start, size)
        except NoSuchObject:
            raise NoObject(key) from None

    def delete(self, key: str) -> None:
        self._bucket.remove(OBJECTS + check_key(key))

    def list(self, prefix: str = "") -> list[StoredObject]:
        items = self._bucket.items(OBJECTS + check_prefix(prefix))
        return [StoredObject(item.key.removeprefix(OBJECTS), item.bytes, item.modified) for item in items]

    def sweep(self, older_than_s: float = ABANDONED_S) -> int:
        oldest = datetime.now(UTC) - timedelta(seconds=older_than_s)
        uploads = [upload for upload in self._bucket.open_uploads(OBJECTS) if upload.begun <= oldest]
        for upload in uploads:
            with suppress(NoSuchObject):  # it came to its end meanwhile
                self._bucket.abort(upload)
        return len(uploads)
