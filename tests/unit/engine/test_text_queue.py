"""Passes: whole texts in order of arrival, one adapter each, and what nobody waits for left out."""

import pytest

from engine.errors import QueueFull
from engine.text_queue import Order, TextQueue


def order(*lengths: int, adapter: str | None = None) -> Order[str | None]:
    return Order([[7] * length for length in lengths], adapter, None)


def taken(queue: TextQueue[str | None], tokens: int) -> list[int]:
    return [len(item.text) for item in queue.take(tokens)]


def test_texts_of_several_requests_fill_a_pass_in_order() -> None:
    queue: TextQueue[str | None] = TextQueue(100)
    for each in (order(3, 4), order(5), order(6)):
        queue.put(each)
    assert len(queue) == 4
    assert taken(queue, 12) == [3, 4, 5]
    assert taken(queue, 12) == [6]
    assert (taken(queue, 12), len(queue)) == ([], 0)


def test_a_text_longer_than_a_pass_goes_alone() -> None:
    queue: TextQueue[str | None] = TextQueue(100)
    queue.put(order(3, 50, 2, 2))
    assert [taken(queue, 10) for _ in range(3)] == [[3], [50], [2, 2]]


def test_a_pass_has_the_adapter_of_the_oldest_text() -> None:
    queue: TextQueue[str | None] = TextQueue(100)
    for each in (order(1), order(2, adapter="a"), order(3), order(4, adapter="a")):
        queue.put(each)
    assert [taken(queue, 100) for _ in range(3)] == [[1, 3], [2, 4], []]


def test_the_oldest_is_never_passed_over() -> None:
    queue: TextQueue[str | None] = TextQueue(1000)
    queue.put(order(*[1] * 10))
    queue.put(order(2, adapter="a"))
    queue.put(order(*[3] * 10))
    assert taken(queue, 10) == [1] * 10
    assert taken(queue, 10) == [2]


def test_dropped_texts_are_not_taken() -> None:
    queue: TextQueue[str | None] = TextQueue(100)
    gone, stays = order(1, 1, 1), order(2)
    queue.put(gone)
    queue.put(stays)
    assert taken(queue, 1) == [1]
    queue.drop(gone)
    queue.drop(gone)
    assert (taken(queue, 10), len(queue)) == ([2], 0)


def test_a_full_queue_refuses_and_one_with_room_takes_a_request_whole() -> None:
    queue: TextQueue[str | None] = TextQueue(3)
    queue.put(order(1, 1))
    queue.put(order(1, 1, 1, 1))
    with pytest.raises(QueueFull, match="6 requests are waiting; at most 3"):
        queue.put(order(1))
    queue.take(4)
    queue.put(order(1))
