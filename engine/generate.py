"""Drive an engine until a list of prompts is complete: the library's convenience. Knows no threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.errors import EngineBusy, GenerationFailed
from engine.records import Request, SamplingParams

if TYPE_CHECKING:
    from engine.engine import Engine


def generate(
    engine: Engine, prompts: Sequence[Sequence[int]], sampling: SamplingParams, adapter: str | None
) -> list[list[int]]:
    """See Engine.generate."""
    if engine.has_work:
        raise EngineBusy(engine.stats().running + engine.stats().waiting)
    todo = deque(Request(str(i), tuple(prompt), sampling, adapter) for i, prompt in enumerate(prompts))
    completions: list[list[int]] = [[] for _ in range(len(prompts) * sampling.n)]
    try:
        while todo or engine.has_work:
            while todo and engine.has_room:
                engine.add(todo.popleft())
            for event in engine.step():
                if event.error is not None:
                    raise GenerationFailed(event.request_id, event.error)
                completions[int(event.request_id) * sampling.n + event.index].extend(event.token_ids)
    finally:
        engine.abort_all()
        engine.step()  # hands out the last events of those aborted, which nobody wants
    return completions
