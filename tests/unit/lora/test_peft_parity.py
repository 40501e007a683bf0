"""Every feature of a PEFT adapter, read from the folder that PEFT wrote: its logits are PEFT's own.

Alone and in one batch with all others, prompts in two chunks and then token by token, on both backends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine import Engine, EngineConfig, Request, SamplingParams
from tests.unit.engine.native_models import torch_threads_kept
from tests.unit.lora.peft_features import FEATURES
from tests.unit.lora.peft_suites import Suite, bind, huge, make_suite, open_model, run

TOLERANCE = {"rtol": 3e-4, "atol": 3e-4}
FAMILIES = [
    "mistral-window",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt2",
    "opt",
    "mixtral",
    "qwen3-moe",
]

Suites = Callable[[str], Suite]
backends = pytest.mark.parametrize("backend", ["reference", "native"])


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Suites:
    """suites("gpt2") -> its adapters, made once."""
    root, made = tmp_path_factory.mktemp("peft"), dict[str, Suite]()

    def get(name: str) -> Suite:
        if name not in made:
            made[name] = make_suite(name, root / name)
        return made[name]

    return get


@backends
@pytest.mark.parametrize("name", [*FEATURES, *FAMILIES])
def test_every_adapter_computes_what_peft_does(suites: Suites, name: str, backend: str) -> None:
    suite = suites(name)
    model = open_model(suite, backend)
    together = run(model, suite.cases)
    for case, got in zip(suite.cases, together, strict=True):
        torch.testing.assert_close(
            got, case.want, **TOLERANCE, msg=lambda text, case=case: f"{case.name}: {text}"
        )
        alone = run(model, [case])[0]
        torch.testing.assert_close(alone, case.want, **TOLERANCE)
        # The native backend promises the same numbers in any company.
        assert backend == "reference" or torch.equal(alone, got), case.name


@pytest.mark.parametrize("name", [*FEATURES, *FAMILIES])
def test_every_adapter_changes_the_answers(suites: Suites, name: str) -> None:
    suite = suites(name)
    for case in suite.cases:
        base = suite.model.logits(case.row.token_ids)[-3:]
        assert case.weights is None or (case.want - base).abs().max() > 0.5, case.name


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
@pytest.mark.parametrize(
    ("backend", "settings"),
    [
        ("reference", {"dtype": "bfloat16"}),
        ("native", {"dtype": "bfloat16"}),
        ("native", {"weights": "int8"}),
    ],
)
def test_narrow_numbers_lose_little_more_than_the_base_does(
    suites: Suites, name: str, backend: str, settings: dict[str, Any]
) -> None:
    suite = suites(name)
    got = run(open_model(suite, backend, **settings), suite.cases)
    lost = {
        case: float((own - case.want).abs().mean() / case.want.std())
        for case, own in zip(suite.cases, got, strict=True)
    }
    base = max(error for case, error in lost.items() if case.weights is None)
    assert base < 0.06
    for case, error in lost.items():
        assert error < 2 * base, case.name


@backends
def test_values_that_overflow_reach_no_neighbour(suites: Suites, backend: str) -> None:
    """Neither beside them in a step, nor later in the blocks they leave behind."""
    suite = suites("llama")
    model = open_model(suite, backend)
    want = run(model, suite.cases)
    for odd in (0, 1):
        sick = {case for case in suite.cases[odd::2] if case.weights is not None}
        for case in sick:
            bind(model, case, huge(case.weights))
        for case, got, before in zip(suite.cases, run(model, suite.cases), want, strict=True):
            assert torch.equal(got, before) is (case not in sick), case.name
        for case in sick:
            bind(model, case, case.weights)
        assert torch.equal(run(model, suite.cases), want)


@backends
def test_an_engine_with_few_slots_writes_what_peft_would(suites: Suites, backend: str) -> None:
    """All adapters take turns; an activated one wakes by itself."""
    suite = suites("llama")
    with torch_threads_kept():
        engine = Engine(
            EngineConfig(
                model=suite.model.folder,
                dtype="float32",
                backend=backend,
                num_blocks=192,
                adapter_slots=3,
                check_integrity=True,
            )
        )
    for case in suite.cases:
        if case.weights is not None:
            engine.add_adapter(engine.prepare_adapter(case.weights))
    sampling = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)
    for case in suite.cases:
        adapter = None if case.weights is None else case.weights.digest
        engine.add(Request(case.name, tuple(case.row.token_ids), sampling, adapter))
    written: dict[str, list[int]] = {case.name: [] for case in suite.cases}
    while engine.has_work:
        for event in engine.step():
            assert event.error is None
            written[event.request_id] += event.token_ids
    assert written == {case.name: case.greedy(5) for case in suite.cases}
