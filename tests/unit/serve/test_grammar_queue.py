"""Grammars are compiled a few at once, each once; a slow one is waited for no longer than is fair."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest

from engine.errors import BadGrammar, GrammarTooComplex, QueueFull
from engine.grammar import Grammar
from serve.grammar_queue import MAX_UNDER_WAY, THREADS, GrammarQueue


class Compiler:
    """Compiles "slow..." once `go` is set, refuses "bad", and has "kept"."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.go = Event()

    def kept_grammar(self, grammar: Grammar) -> Any:
        return "kept" if grammar.text == "kept" else None

    def prepare_grammar(self, grammar: Grammar) -> Any:
        self.made.append(grammar.text)
        if grammar.text.startswith("slow"):
            assert self.go.wait(20)
        if grammar.text == "bad":
            raise BadGrammar(grammar.param, "so it is")
        return f"made {grammar.text}"


def regex(text: str, param: str = "grammar") -> Grammar:
    return Grammar("regex", text, param)


async def test_the_same_grammar_is_compiled_once_for_all_who_wait() -> None:
    compiler = Compiler()
    queue = GrammarQueue(compiler)
    waiting = [asyncio.create_task(queue.prepare(regex("slow"))) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # one that leaves takes nothing from the others
    compiler.go.set()
    assert await asyncio.gather(*waiting[1:]) == ["made slow"] * 4
    assert compiler.made == ["slow"]
    queue.close()


async def test_one_slow_grammar_delays_no_other() -> None:
    compiler = Compiler()
    queue = GrammarQueue(compiler)
    slow = asyncio.create_task(queue.prepare(regex("slow")))
    assert await queue.prepare(regex("quick")) == "made quick"
    assert not slow.done()
    more = [asyncio.create_task(queue.prepare(regex(f"slow{number}"))) for number in range(THREADS)]
    await asyncio.sleep(0)
    assert await queue.prepare(regex("kept")) == "kept"
    compiler.go.set()
    await asyncio.gather(slow, *more)
    queue.close()


async def test_who_has_waited_long_enough_is_refused_and_the_thread_goes_on() -> None:
    compiler = Compiler()
    queue = GrammarQueue(compiler, patience_s=0.01)
    with pytest.raises(GrammarTooComplex, match="response_format has taken more than") as refused:
        await queue.prepare(regex("slow", "response_format"))
    assert refused.value.param == "response_format"
    compiler.go.set()
    queue.close()


async def test_a_refusal_names_each_request_s_own_parameter() -> None:
    queue = GrammarQueue(Compiler())
    names = ["structured_outputs.regex", "text.format"]
    refusals = await asyncio.gather(
        *(queue.prepare(regex("bad", name)) for name in names), return_exceptions=True
    )
    assert [getattr(refusal, "param", None) for refusal in refusals] == names
    queue.close()


async def test_no_more_than_so_many_wait() -> None:
    compiler = Compiler()
    queue = GrammarQueue(compiler)
    waiting = [asyncio.create_task(queue.prepare(regex(f"slow{n}"))) for n in range(MAX_UNDER_WAY)]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await queue.prepare(regex("slow again"))
    compiler.go.set()
    await asyncio.gather(*waiting)
    assert await queue.prepare(regex("quick")) == "made quick"
    queue.close()
