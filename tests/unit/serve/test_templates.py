"""Adapters' own chat templates: in whose turn each is rendered, and that none holds up another."""

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.confined_template import ConfinedTemplate, TemplateProcesses
from serve.templates import PROCESSES, AdapterTemplates


class Tokenizer:
    def confined_template(self, source: str, processes: TemplateProcesses) -> ConfinedTemplate:
        return ConfinedTemplate(source, {"bos_token": "<s>"}, processes)


def template(templates: AdapterTemplates, source: str) -> ConfinedTemplate:
    route = SimpleNamespace(model=SimpleNamespace(tokenizer=Tokenizer()), chat_template=source)
    found = templates.of(cast(Any, route))
    assert found is not None
    return found


@pytest.fixture
async def templates() -> AsyncIterator[AdapterTemplates]:
    made = AdapterTemplates(kept=PROCESSES)
    yield made
    made.close()


async def test_without_a_template_of_its_own_there_is_none(templates: AdapterTemplates) -> None:
    assert templates.of(cast(Any, SimpleNamespace(chat_template=None))) is None


async def test_an_adapters_own_is_rendered(templates: AdapterTemplates) -> None:
    own = template(templates, "{{ bos_token }}{{ messages[0].content }}")
    text = await templates.use(
        own,
        lambda: own.render([{"content": "x"}], tools=None, add_generation_prompt=True, variables={}),
    )
    assert text == "<s>x"


async def test_a_slow_template_holds_up_nobody_elses(templates: AdapterTemplates) -> None:
    loop, started = asyncio.get_running_loop(), asyncio.Event()
    go, begun = threading.Event(), []

    def slow() -> None:
        begun.append(1)
        loop.call_soon_threadsafe(started.set)
        assert go.wait(30)

    held = [asyncio.create_task(templates.use(template(templates, "slow"), slow)) for _ in range(5)]
    await started.wait()
    assert await templates.use(template(templates, "quick"), lambda: "done") == "done"
    assert len(begun) == 1
    go.set()
    await asyncio.gather(*held)
    assert len(begun) == 5


async def test_turns_are_not_kept_without_bound(templates: AdapterTemplates) -> None:
    for number in range(10):
        await templates.use(template(templates, str(number)), lambda: None)
        assert len(templates) <= PROCESSES
