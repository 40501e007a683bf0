"""A request answered in one piece: started, read to its end, put into the shape of its API. Knows no HTTP."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from serve.answers.events import Format
from serve.answers.shared import collect, takes_long, usage
from serve.conductor import Performance
from serve.generation import merged, start_all
from serve.responder import Responder, Turn

T = TypeVar("T")


async def whole(performance: Performance[Format], into: Callable[[dict[str, Any]], T]) -> T:
    """What `into`, on any thread, makes of a chat or a completion.

    Raises the refusal of the replica, GenerationError or ReplicaLost.
    """
    generations = performance.generations
    await start_all(generations)
    async with contextlib.aclosing(merged(generations)) as made:
        pieces = [piece async for piece in made]
    choices = collect(pieces, performance.choices)

    def made_of() -> T:
        return into(performance.format.whole(choices, usage(generations)))

    return await asyncio.to_thread(made_of) if takes_long(pieces) else made_of()


async def whole_turn(responder: Responder, turn: Turn) -> dict[str, Any]:
    """A turn of the Responses API, kept where that was asked for. Raises the same, or DatabaseAway."""
    generations, shape = turn.performance.generations, turn.performance.format
    await responder.start(turn)
    async with contextlib.aclosing(merged(generations)) as pieces:
        async for piece in pieces:
            for _ in shape.events(piece):
                pass
    return await responder.kept(turn, shape.whole(usage(generations)))
