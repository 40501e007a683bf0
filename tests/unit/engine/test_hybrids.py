"""Hybrid and windowed models over texts of several windows, on both backends, whatever becomes of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.block_need import BlockNeed
from engine.config import EngineConfig, blocks_for
from engine.engine import Engine
from engine.fake_runner import FixedCosts
from engine.modelspec import read_spec
from engine.records import Request, SamplingParams, TokenEvent
from tests.unit.engine.conftest import TinyModel

Tiny = Callable[[str], TinyModel]
PROMPT = [(7 * i) % 96 + 3 for i in range(120)]
GREEDY = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)

ON_BACKENDS = [
    (name, backend)
    for name in ("mistral-window", "qwen2-window", "gemma2", "gemma3")
    for backend in ("native", "reference")
]


@pytest.fixture(autouse=True)
def torch_threads() -> Iterator[None]:
    """The native backend leaves torch a single thread; other tests get theirs back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _engine(model: TinyModel, backend: str, **settings: Any) -> Engine:
    given = {"num_blocks": 90, "max_model_len": 200, "max_num_seqs": 4, "max_batched_tokens": 16}
    config = EngineConfig(
        model=model.folder,
        dtype="float32",
        backend=backend,  # type: ignore[arg-type]  # parametrized
        check_integrity=True,
        **{**given, **settings},
    )
    return Engine(config, costs=FixedCosts())


def _tokens(events: list[TokenEvent], name: str) -> list[int]:
    return [token for event in events if event.request_id == name for token in event.token_ids]


def _theirs(model: TinyModel, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens of transformers, each from the whole text anew."""
    text = list(prompt)
    for _ in range(count):
        text.append(int(model.logits(text)[-1].argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize(("name", "backend"), ON_BACKENDS)
def test_tokens_are_those_of_transformers_and_no_more_is_held_than_is_seen(
    tiny: Tiny, name: str, backend: str
) -> None:
    model = tiny(name)
    engine = _engine(model, backend)
    engine.add(Request("a", tuple(PROMPT), GREEDY))
    events: list[TokenEvent] = []
    while engine.has_work:
        events += engine.step()
    assert _tokens(events, "a") == _theirs(model, PROMPT, 60)
    groups = read_spec(model.folder).kv_groups.windows
    most = BlockNeed(groups, step_tokens=16).most(blocks_for(179))
    assert events[-1].stats is not None
    assert events[-1].stats.blocks <= most == sum(4 if window else 12 for window in groups)
    assert engine.stats().window_frees >= 8 * sum(window is not None for window in groups)


@pytest.mark.parametrize(("name", "backend"), [one for one in ON_BACKENDS if one[0] != "mistral-window"])
@pytest.mark.parametrize("swap", [False, True])
def test_tokens_are_the_same_where_blocks_are_short(tiny: Tiny, name: str, backend: str, swap: bool) -> None:
    model = tiny(name)
    prompts = [PROMPT[j : j + 60] for j in (0, 5, 11)]
    spec = read_spec(model.folder)
    # Two are admitted with their prompts and a row more; what they grow to does not fit.
    two = 2 * BlockNeed(spec.kv_groups.windows, step_tokens=16).most(blocks_for(60) + 1)
    swap_bytes = 60 * spec.block_bytes("float32") if swap else 0

    def completions(num_blocks: int) -> tuple[list[list[int]], Engine]:
        sizes = {"num_blocks": num_blocks, "swap_bytes": swap_bytes, "prefix_cache": False}
        engine = _engine(model, backend, **sizes)
        return engine.generate(prompts, replace(GREEDY, max_tokens=120)), engine

    ample, _ = completions(90)
    scarce, engine = completions(two + 1)
    assert scarce == ample
    assert engine.stats().preemptions > 0
    assert (engine.stats().swaps > 0) == swap


@pytest.mark.parametrize(("name", "backend"), ON_BACKENDS)
def test_tokens_are_the_same_on_a_cached_prefix_and_in_a_fork(tiny: Tiny, name: str, backend: str) -> None:
    model = tiny(name)
    engine = _engine(model, backend)
    engine.generate([PROMPT], GREEDY)
    again = [*PROMPT[:107], 99, 98, 97]
    engine.add(Request("parent", tuple(again), GREEDY))
    events = engine.step()
    while not _tokens(events, "parent"):
        events += engine.step()
    assert engine.stats().prefix_hits == 107
    forked = [*again, 77]
    engine.fork("parent", Request("child", tuple(forked), SamplingParams(max_tokens=9, temperature=0.0)))
    while engine.has_work:
        events += engine.step()
    assert engine.stats().copies_on_write > 0
    wanted = SamplingParams(max_tokens=9, temperature=0.0)
    fresh = _engine(model, backend, prefix_cache=False)
    assert _tokens(events, "parent") == fresh.generate([again], GREEDY)[0]
    assert _tokens(events, "child") == fresh.generate([forked], wanted)[0]
