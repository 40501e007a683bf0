"""The chat templates of adapters, rendered where they can hurt nobody.

Owns the processes and threads for it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from engine.confined_template import ConfinedTemplate, TemplateProcesses
from lora.background import BackgroundThreads
from serve.routing import Route

PROCESSES = 2
KEPT = 256
"""Templates whose turns are kept; the one unused for longest goes first."""

T = TypeVar("T")


class AdapterTemplates:
    """One template is rendered once at a time, so that a slow one leaves a process to the others.

    For one event loop.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._processes = TemplateProcesses(PROCESSES)
        self._threads = BackgroundThreads(PROCESSES, "templates")
        self._turns: OrderedDict[str, asyncio.Lock] = OrderedDict()

    def __len__(self) -> int:
        return len(self._turns)

    def of(self, route: Route) -> ConfinedTemplate | None:
        """The template of the adapter that answers; None where its base model's holds."""
        if route.chat_template is None:
            return None
        return route.model.tokenizer.confined_template(route.chat_template, self._processes)

    async def use(self, template: ConfinedTemplate, work: Callable[[], T]) -> T:
        """What `work`, which renders the template, returns or raises; on a thread, in its turn."""
        async with self._turn(template.source):
            return await self._threads.run(work)

    def close(self) -> None:
        """End the processes."""
        self._threads.close()
        self._processes.close()

    def _turn(self, source: str) -> asyncio.Lock:
        turn = self._turns.pop(source, None) or asyncio.Lock()
        self._turns[source] = turn
        if len(self._turns) > self._kept:
            self._turns.popitem(last=False)
        return turn
