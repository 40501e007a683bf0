"""A store in an S3 bucket, or in what speaks its protocol.

An adapter counts from the moment its marker is there, and its files are written before and never again: so
nobody meets half of one. Each upload has a folder and a marker of its own. Two writers of one adapter cannot
mix their files, and what is removed is always one upload, never what another writer has just restored.
"""

import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from uuid import uuid4

from lora.errors import DamagedCopy, NotInStore, StoreUnavailable
from lora.folders import copy_adapter
from lora.format import DEFAULT_LIMITS, Limits, adapter_files, is_digest, present_files, read_adapter
from lora.store.bucket import Bucket, Item, NoSuchObject
from lora.store.local_copy import QUARANTINE, SCHEME, Spoiled, fetch_copy, hexadecimal
from lora.store.manifest import Manifest
from lora.store.options import S3Options
from lora.store.protocol import ABANDONED_S

_FILES, _MARKERS = "adapters/", "complete/"
_DEPTH = 3  # slashes in the key of a file


class S3Store:
    """An AdapterStore. A "place" is <hex>/<upload>, where <upload> is random.

    adapters/<place>/<file>           the adapter's files
    complete/<place>                  the marker: names, sizes and SHA-256 of the files
    quarantine/<hex>-<random>/<file>  copies whose bytes were wrong
    """

    def __init__(self, bucket: str, prefix: str, s3: S3Options, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._bucket, self._limits = Bucket(bucket, prefix, s3), limits

    @property
    def url(self) -> str:
        return self._bucket.url

    def put(self, folder: Path) -> str:
        digest = read_adapter(folder, limits=self._limits).digest
        if self._has_whole(digest):
            return digest
        with tempfile.TemporaryDirectory(prefix="noria-put-") as name:
            staged = Path(name)
            copy_adapter(folder, staged, adapter_files(folder, self._limits))  # what is checked is then sent
            digest = read_adapter(staged, limits=self._limits).digest
            self._upload(staged, digest)
        return digest

    def fetch(self, digest: str, into: Path) -> Path:
        tried: list[str] = []
        try:
            return fetch_copy(digest, into, lambda staged: self._copy(digest, staged, tried), self._limits)
        except DamagedCopy:
            self._move_aside(tried[-1])
            raise

    def exists(self, digest: str) -> bool:
        return bool(self._places(digest))

    def delete(self, digest: str) -> bool:
        places = self._places(digest)
        for place in places:
            self._discard(place)
        return bool(places)

    def sweep(self, older_than_s: float = ABANDONED_S) -> int:
        oldest = datetime.now(UTC) - timedelta(seconds=older_than_s)
        uploads = [item for item in self._bucket.open_uploads(_FILES) if item.begun <= oldest]
        for upload in uploads:
            with suppress(NoSuchObject):  # it came to its end meanwhile
                self._bucket.abort(upload)
        files = [item for item in self._bucket.items(_FILES) if item.key.count("/") == _DEPTH]
        places = groupby(files, key=_place_of)
        old = [place for place, items in places if max(item.modified for item in items) <= oldest]
        complete = {_place_of(item) for item in self._bucket.items(_MARKERS)}  # read last: none is too young
        abandoned = [place for place in old if place not in complete]
        for place in abandoned:
            self._discard(place)
        return len(uploads) + len(abandoned)

    def check(self) -> None:
        self._bucket.items(_MARKERS, at_most=1)

    def _places(self, digest: str) -> tuple[str, ...]:
        """Complete uploads of one adapter: one, or several where writers met."""
        return tuple(_place_of(item) for item in self._bucket.items(f"{_MARKERS}{hexadecimal(digest)}/"))

    def _has_whole(self, digest: str) -> bool:
        """Whether an upload is all there by the sizes of its files; one that is not is moved aside."""
        for place in self._places(digest):
            try:
                Manifest.parse(self._bucket.read(_MARKERS + place)).check_sizes(self._sizes(place))
            except NoSuchObject:  # removed just now
                continue
            except Spoiled:
                self._move_aside(place)
            else:
                return True
        return False

    def _upload(self, staged: Path, digest: str) -> None:
        manifest, place = Manifest.of(staged, present_files(staged)), f"{hexadecimal(digest)}/{uuid4().hex}"
        try:
            for name in manifest.files:
                self._bucket.upload(staged / name, f"{_FILES}{place}/{name}")
            if self.exists(digest):  # another writer was first
                self._discard(place)
            else:
                self._bucket.write(_MARKERS + place, manifest.write())
        except BaseException:  # whatever ends it, its files are of no use
            with suppress(StoreUnavailable):  # then sweep() has them
                self._discard(place)
            raise

    def _copy(self, digest: str, staged: Path, tried: list[str]) -> None:
        """Download an upload. Adds its place to `tried`. Raises NotInStore, Spoiled."""
        places = self._places(digest)
        if not places:
            raise NotInStore(digest)
        tried.append(places[0])
        try:
            manifest = Manifest.parse(self._bucket.read(_MARKERS + places[0]))
            manifest.check_sizes(self._sizes(places[0]))
            for name in manifest.files:
                self._bucket.download(f"{_FILES}{places[0]}/{name}", staged / name)
            manifest.check_content(staged)
        except (NoSuchObject, Spoiled) as error:
            if places[0] not in self._places(digest):  # removed while it was read
                raise NotInStore(digest) from error
            raise Spoiled(str(error) or "a file is missing") from error

    def _sizes(self, place: str) -> dict[str, int]:
        """File name -> bytes."""
        folder = f"{_FILES}{place}/"
        return {item.key.removeprefix(folder): item.bytes for item in self._bucket.items(folder)}

    def _discard(self, place: str) -> None:
        """The marker first, so that nobody sees what is being removed."""
        self._bucket.remove(_MARKERS + place)
        for name in self._sizes(place):
            self._bucket.remove(f"{_FILES}{place}/{name}")

    def _move_aside(self, place: str) -> None:
        self._bucket.remove(_MARKERS + place)
        target = f"{QUARANTINE}/{place.partition('/')[0]}-{uuid4().hex[:8]}"
        for name in self._sizes(place):
            with suppress(NoSuchObject):  # another reader moves it too
                self._bucket.move(f"{_FILES}{place}/{name}", f"{target}/{name}")

    def list(self) -> list[str]:
        names = {_place_of(item).partition("/")[0] for item in self._bucket.items(_MARKERS)}
        return sorted(SCHEME + name for name in names if is_digest(SCHEME + name))


def _place_of(item: Item) -> str:
    """<hex>/<upload> of a file's key or of a marker's."""
    return "/".join(item.key.split("/")[1:3])
