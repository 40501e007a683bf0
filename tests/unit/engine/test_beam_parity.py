"""Beam search equals transformers' generate(num_beams=W, do_sample=False) in tokens and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from engine.config import Backend, EngineConfig
from engine.engine import Engine
from engine.records import Request, SamplingParams, TokenEvent
from tests.unit.engine.conftest import TinyModel

BACKENDS: tuple[Backend, ...] = ("native", "reference")
Tiny = Callable[[str], TinyModel]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """The native backend leaves torch a single thread; other tests get theirs back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def prompt_of(length: int, seed: int) -> list[int]:
    return torch.randint(3, 128, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def searched(engine: Engine, prompts: list[list[int]], sampling: SamplingParams) -> list[list[TokenEvent]]:
    """The hypotheses of each prompt, best first; all prompts at once."""
    for index, prompt in enumerate(prompts):
        engine.add(Request(str(index), tuple(prompt), sampling))
    found: list[list[TokenEvent]] = [[] for _ in prompts]
    while engine.has_work:
        for event in engine.step():
            assert event.error is None
            found[int(event.request_id)].append(event)
    return found


def wanted(
    model: TinyModel, prompt: list[int], width: int, **settings: Any
) -> tuple[list[list[int]], list[float]]:
    """Tokens, cut behind the end token, and scores of all hypotheses."""
    made = model.reference.generate(
        torch.tensor([prompt]),
        num_beams=width,
        num_return_sequences=width,
        do_sample=False,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
        **settings,
    )
    ends = settings["eos_token_id"]
    completions = []
    for row in made.sequences[:, len(prompt) :].tolist():
        first = next((place for place, token in enumerate(row) if token in ends), len(row) - 1)
        completions.append(row[: first + 1])
    return completions, made.sequences_scores.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("name", "width", "ends", "about"),
    [
        ("qwen3", 2, [2], {}),
        ("llama", 4, list(range(2, 20)), {}),
        ("llama", 4, list(range(2, 20)), {"early_stopping": True}),
        ("llama", 3, list(range(2, 12)), {"early_stopping": "never", "length_penalty": 1.5}),
        ("mistral-window", 5, list(range(2, 12)), {"early_stopping": "never", "length_penalty": 0.0}),
        ("llama", 3, list(range(2, 30)), {"length_penalty": -0.5}),
    ],
)
def test_hypotheses_equal_transformers(
    tiny: Tiny, backend: Backend, name: str, width: int, ends: list[int], about: dict[str, Any]
) -> None:
    check(tiny(name), backend, width, ends, about)


def test_hypotheses_of_a_hybrid_model_equal_transformers(tiny: Tiny) -> None:
    """Its layers forget at different distances: beams share what each kind of layer still sees."""
    check(tiny("gemma2"), "auto", 4, list(range(2, 20)), {})


def check(model: TinyModel, backend: Backend, width: int, ends: list[int], about: dict[str, Any]) -> None:
    """All hypotheses of three prompts, searched at once, are those of transformers."""
    config = EngineConfig(
        model=model.folder, dtype="float32", num_blocks=64, backend=backend, check_integrity=True, threads=1
    )
    sampling = SamplingParams(
        max_tokens=15,
        temperature=0.0,
        n=width,
        beam_width=width,
        ignore_eos=True,
        stop_token_ids=tuple(ends),
        **about,
    )
    prompts = [prompt_of(length, seed) for seed, length in enumerate((5, 33, 48))]
    for prompt, events in zip(prompts, searched(Engine(config), prompts, sampling), strict=True):
        tokens, scores = wanted(model, prompt, width, eos_token_id=ends, max_new_tokens=15, **about)
        assert [list(event.token_ids) for event in events] == tokens
        assert [event.score for event in events] == pytest.approx(scores, rel=1e-4)
        assert [event.index for event in events] == list(range(width))
        for event in events:
            ended = event.token_ids[-1] in ends
            assert event.finish == ("stop" if ended else "length")
