"""Which adapter sits in which slot, and how many live requests refer to it. Knows no weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.errors import AdapterInUse, IntegrityError, NoFreeSlot, UnknownAdapter
from engine.records import SlotInfo

NO_ADAPTER = 0


class AdapterSlots:
    """Slots 1 .. num_slots by adapter digest; slot 0 means no adapter and is never given out."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._empty = list(range(num_slots, 0, -1))
        self._loaded: dict[str, SlotInfo] = {}

    def slot_of(self, digest: str) -> int | None:
        info = self._loaded.get(digest)
        return None if info is None else info.slot

    def next_empty(self) -> int:
        """The slot to fill next; raises NoFreeSlot."""
        if not self._empty:
            raise NoFreeSlot(self._num_slots)
        return self._empty[-1]

    def occupy(self, digest: str, num_bytes: int) -> int:
        """Record that next_empty() now holds this adapter."""
        slot = self._empty.pop()
        self._loaded[digest] = SlotInfo(digest=digest, slot=slot, bytes=num_bytes, requests=0)
        return slot

    def pin(self, digest: str | None) -> int:
        """A request refers to the adapter from now on; returns its slot. Raises UnknownAdapter."""
        return NO_ADAPTER if digest is None else self._count(digest, 1).slot

    def unpin(self, digest: str | None) -> None:
        """The request has ended."""
        if digest is not None:
            self._count(digest, -1)

    def check_unused(self, digest: str) -> int:
        """The slot of an adapter that may be unloaded; raises UnknownAdapter, AdapterInUse."""
        info = self._info(digest)
        if info.requests:
            raise AdapterInUse(digest, info.requests)
        return info.slot

    def vacate(self, digest: str) -> None:
        """Record that the adapter's slot is empty again."""
        self._empty.append(self._loaded.pop(digest).slot)

    def snapshot(self) -> dict[str, SlotInfo]:
        return dict(self._loaded)

    def _info(self, digest: str) -> SlotInfo:
        if digest not in self._loaded:
            raise UnknownAdapter(digest, self._loaded)
        return self._loaded[digest]

    def _count(self, digest: str, change: int) -> SlotInfo:
        info = self._info(digest)
        self._loaded[digest] = replace(info, requests=info.requests + change)
        return self._loaded[digest]

    def check_integrity(self, referred: Iterable[str | None]) -> None:
        """Raise IntegrityError unless slots are given out once and counts equal the live references."""
        slots = [info.slot for info in self._loaded.values()]
        if sorted(slots + self._empty) != list(range(1, self._num_slots + 1)):
            raise IntegrityError(f"slots in use {slots} and empty {self._empty} do not make the whole")
        digests = [digest for digest in referred if digest is not None]
        for digest, info in self._loaded.items():
            if info.requests != digests.count(digest):
                raise IntegrityError(
                    f"adapter {digest!r} counts {info.requests} requests; {digests.count(digest)} refer to it"
                )
