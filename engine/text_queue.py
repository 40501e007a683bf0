"""Texts that wait to be embedded, in order of arrival. Knows no model and no threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from engine.errors import QueueFull

Adapter = TypeVar("Adapter")


@dataclass(slots=True, eq=False)
class Order(Generic[Adapter]):
    """Texts of one request. started: how many of them were taken. vectors: the bytes of each, once made."""

    texts: Sequence[Sequence[int]]
    adapter: Adapter
    dimensions: int | None
    started: int = 0
    vectors: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item(Generic[Adapter]):
    """One text of an order."""

    order: Order[Adapter]
    place: int

    @property
    def text(self) -> Sequence[int]:
        """Its token ids."""
        return self.order.texts[self.place]


class TextQueue(Generic[Adapter]):
    """A pass is the oldest text and those after it that have the same adapter, while there is room."""

    def __init__(self, max_waiting: int) -> None:
        """max_waiting: texts; a request is taken in whole while fewer wait."""
        self._max_waiting = max_waiting
        self._orders: dict[int, Order[Adapter]] = {}

    def __len__(self) -> int:
        """Texts that have not been taken."""
        return sum(len(order.texts) - order.started for order in self._orders.values())

    def put(self, order: Order[Adapter]) -> None:
        """Raises QueueFull."""
        if (waiting := len(self)) >= self._max_waiting:
            raise QueueFull(waiting, self._max_waiting)
        self._orders[id(order)] = order

    def drop(self, order: Order[Adapter]) -> None:
        """Nobody waits for it any more: none of its texts is taken from now on."""
        self._orders.pop(id(order), None)

    def take(self, tokens: int) -> list[Item[Adapter]]:
        """The next pass: whole texts, up to so many tokens together; a longer one goes alone."""
        taken: list[Item[Adapter]] = []
        room = tokens
        for item in self._candidates():
            if taken and len(item.text) > room:
                break
            taken.append(item)
            room -= len(item.text)
        for item in taken:
            item.order.started += 1
            if item.order.started == len(item.order.texts):
                self.drop(item.order)
        return taken

    def _candidates(self) -> Iterator[Item[Adapter]]:
        oldest = next(iter(self._orders.values()), None)
        for order in self._orders.values():
            if oldest is not None and order.adapter is oldest.adapter:
                yield from (Item(order, place) for place in range(order.started, len(order.texts)))
