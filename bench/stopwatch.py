"""Where time goes, by kind: nested calls are charged to the innermost kind only, so that kinds add up."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A function to watch, as an attribute of a class or a module, and the kind its time belongs to."""

    owner: Any
    attribute: str
    kind: str


class Stopwatch:
    """Used by one thread. seconds: by kind, since the last reset."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._clock = clock
        self._kinds: list[str] = []
        self._since = 0.0

    def reset(self) -> None:
        self.seconds.clear()

    def wrap(self, function: Function, kind: str) -> Function:
        """`function`, its time without that of other watched functions added to `kind`."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._charge()
            self._kinds.append(kind)
            try:
                return function(*args, **kwargs)
            finally:
                self._charge()
                self._kinds.pop()

        return timed

    def _charge(self) -> None:
        now = self._clock()
        if self._kinds:
            self.seconds[self._kinds[-1]] += now - self._since
        self._since = now

    @contextmanager
    def watching(self, places: Sequence[Place]) -> Iterator[None]:
        """Put a timed function at each place for the length of the block."""
        with ExitStack() as stack:
            for place in places:
                original = vars(place.owner)[place.attribute]
                stack.callback(setattr, place.owner, place.attribute, original)
                setattr(place.owner, place.attribute, self.wrap(original, place.kind))
            yield
