"""Grammars of requests, compiled beside the event loop: a few at once, each once, and nobody waits for ever.

A grammar that takes long keeps a thread busy until it is done, whoever still waits for it; the compiler works
within limits of its own. Knows no model and no HTTP.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from engine.errors import GrammarTooComplex, QueueFull
from engine.grammar import Grammar

if TYPE_CHECKING:
    from engine.guidance import PreparedGrammar

THREADS = 2
PATIENCE_S = 10.0
MAX_UNDER_WAY = 64


class GrammarEngine(Protocol):
    """The part of AsyncEngine that is needed here."""

    def prepare_grammar(self, grammar: Grammar) -> "PreparedGrammar": ...

    def kept_grammar(self, grammar: Grammar) -> "PreparedGrammar | None": ...


class GrammarQueue:
    """On one event loop. patience_s: seconds that a request waits for its grammar."""

    def __init__(self, engine: GrammarEngine, patience_s: float = PATIENCE_S) -> None:
        self._engine = engine
        self._patience_s = patience_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grammars")
        self._under_way: dict[tuple[Grammar, str], asyncio.Future[PreparedGrammar]] = {}

    async def prepare(self, grammar: Grammar) -> "PreparedGrammar":
        """Raises BadGrammar, GrammarTooComplex, QueueFull."""
        if (kept := self._engine.kept_grammar(grammar)) is not None:
            return kept
        making = self._under_way.get((grammar, grammar.param)) or self._begin(grammar)
        try:
            async with asyncio.timeout(self._patience_s):
                return await asyncio.shield(making)
        except TimeoutError:
            raise GrammarTooComplex(
                grammar.param, f"taken more than {self._patience_s:g} s to compile", "that is"
            ) from None

    def close(self) -> None:
        """Compile nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, grammar: Grammar) -> "asyncio.Future[PreparedGrammar]":
        if len(self._under_way) >= MAX_UNDER_WAY:
            raise QueueFull(len(self._under_way), MAX_UNDER_WAY)
        key = grammar, grammar.param  # errors name the parameter, which grammars are equal without
        loop = asyncio.get_running_loop()
        making = loop.run_in_executor(self._threads, self._engine.prepare_grammar, grammar)
        self._under_way[key] = making

        def end(made: "asyncio.Future[PreparedGrammar]") -> None:
            del self._under_way[key]
            if not made.cancelled():
                made.exception()  # where nobody waits any more, nobody need hear of it

        making.add_done_callback(end)
        return making
