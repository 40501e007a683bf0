"""The adapters that requests may name, and how many live requests do. Knows no slots and no tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from engine.errors import AdapterInUse, IntegrityError, UnknownAdapter
from engine.ports import PreparedAdapter
from engine.records import AdapterInfo


class AddedAdapters:
    """Prepared adapters by digest; it owns one reference to each."""

    def __init__(self) -> None:
        self._prepared: dict[str, PreparedAdapter] = {}
        self._infos: dict[str, AdapterInfo] = {}

    def __len__(self) -> int:
        return len(self._prepared)

    def add(self, prepared: PreparedAdapter) -> None:
        """Requests may name it from now on; the same digest again changes nothing."""
        if prepared.digest not in self._prepared:
            self._prepared[prepared.digest] = prepared
            self._infos[prepared.digest] = AdapterInfo(prepared.digest, None, prepared.nbytes, 0)

    def get(self, digest: str) -> PreparedAdapter:
        """Raises UnknownAdapter."""
        if digest not in self._prepared:
            raise UnknownAdapter(digest, self._prepared)
        return self._prepared[digest]

    def pin(self, digest: str) -> PreparedAdapter:
        """A request refers to the adapter from now on. Raises UnknownAdapter."""
        prepared = self.get(digest)
        self._count(digest, 1)
        return prepared

    def unpin(self, digest: str) -> None:
        """The request has ended."""
        self._count(digest, -1)

    def remove(self, digest: str) -> int:
        """Let go of an adapter that no request refers to; returns its bytes.

        Raises UnknownAdapter, AdapterInUse.
        """
        self.get(digest)
        if self._infos[digest].requests:
            raise AdapterInUse(digest, self._infos[digest].requests)
        del self._prepared[digest]
        return self._infos.pop(digest).bytes

    def snapshot(self, slots: Mapping[str, int]) -> dict[str, AdapterInfo]:
        """All of them, with the slots that some hold."""
        held = {digest: replace(self._infos[digest], slot=slot) for digest, slot in slots.items()}
        return self._infos | held

    def _count(self, digest: str, change: int) -> None:
        info = self._infos[digest]
        self._infos[digest] = replace(info, requests=info.requests + change)

    def check_integrity(self, referred: Iterable[str | None]) -> None:
        """Raise IntegrityError unless counts equal the live references."""
        counts = Counter(referred)
        for digest, info in self._infos.items():
            if info.requests != counts[digest]:
                raise IntegrityError(
                    f"adapter {digest!r} counts {info.requests} requests; {counts[digest]} refer to it"
                )
