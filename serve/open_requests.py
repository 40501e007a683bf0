"""What belongs to each request until the last of its choices has ended. Knows nothing of what that is."""

from typing import Generic, TypeVar

T = TypeVar("T")


class OpenRequests(Generic[T]):
    """Things by request id, each with the number of choices that have not ended."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[T, int]] = {}

    def open(self, request_id: str, choices: int, thing: T) -> None:
        """A request of so many choices has begun."""
        self._open[request_id] = (thing, choices)

    def get(self, request_id: str) -> T | None:
        """The thing of an open request."""
        found = self._open.get(request_id)
        return None if found is None else found[0]

    def end_choice(self, request_id: str) -> T | None:
        """One choice has ended: the thing if it was the last, which closes the request."""
        found = self._open.get(request_id)
        if found is not None and found[1] > 1:
            self._open[request_id] = (found[0], found[1] - 1)
            return None
        return self.close(request_id)

    def close(self, request_id: str) -> T | None:
        """The request has ended, whatever its choices do; its thing, None where it was not open."""
        found = self._open.pop(request_id, None)
        return None if found is None else found[0]

    def of(self, thing: T) -> list[str]:
        """Ids of the open requests that a thing belongs to."""
        return [request_id for request_id, (owner, _) in self._open.items() if owner is thing]
