"""Log probabilities of prompts: equal to transformers', the same to the bit in any company and any pieces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.config import EngineConfig
from engine.engine import Engine
from engine.fake_runner import FakeRunner, fake_engine, prompt_score, state_after
from engine.modelspec import read_spec
from engine.records import Request, SamplingParams, StepPlan, TokenEvent, TokenLogprob
from tests.unit.engine.conftest import TinyModel, adapt
from tests.unit.engine.native_models import adapter, make_rows, native, reference, torch_threads_kept

Tiny = Callable[[str], TinyModel]
TOLERANCE = 2e-4
LENGTHS = [1, 2, 5, 17, 64, 66, 100, 140]


def prompts(vocab: int = 128) -> list[tuple[int, ...]]:
    random = torch.Generator().manual_seed(5)
    return [tuple(torch.randint(3, vocab, (length,), generator=random).tolist()) for length in LENGTHS]


def requests(many: list[tuple[int, ...]], **sampling: Any) -> list[Request]:
    asked = {"max_tokens": 3, "temperature": 0.0, "prompt_logprobs": 4, "ignore_eos": True} | sampling
    return [Request(str(number), ids, SamplingParams(**asked)) for number, ids in enumerate(many)]


def run(engine: Engine, many: list[Request]) -> dict[str, list[TokenEvent]]:
    events: dict[str, list[TokenEvent]] = {request.id: [] for request in many}
    for request in many:
        engine.add(request)
    while engine.has_work:
        for event in engine.step():
            events[event.request_id].append(event)
    return events


def scores(events: list[TokenEvent]) -> tuple[TokenLogprob, ...]:
    """Brought by the first event of choice 0, and by no other."""
    first = next(event for event in events if event.index == 0)
    assert [event.prompt_logprobs for event in events if event is not first] == [None] * (len(events) - 1)
    assert first.prompt_logprobs is not None
    return first.prompt_logprobs


def tiny_engine(model: TinyModel, backend: str, **settings: Any) -> Engine:
    sizes: dict[str, Any] = {"num_blocks": 192, "dtype": "float32", "check_integrity": True}
    with torch_threads_kept():
        return Engine(EngineConfig(model=model.folder, backend=backend, **sizes | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("name", ["llama", "mistral-window", "gemma2"])
def test_whole_prompts_equal_transformers(tiny: Tiny, name: str, backend: str) -> None:
    """Within 2e-4 in float32: the logits of both differ by as much."""
    model = tiny(name)
    found = run(tiny_engine(model, backend, max_batched_tokens=70), requests(prompts()))
    for request in requests(prompts()):
        got = scores(found[request.id])
        want = model.logits(list(request.prompt)).log_softmax(-1)
        assert [score.token_id for score in got] == list(request.prompt[1:])
        for place, score in enumerate(got):
            row = want[place]
            assert score.logprob == pytest.approx(float(row[score.token_id]), abs=TOLERANCE)
            surely = int((row > row[score.token_id] + TOLERANCE).sum())
            perhaps = int((row > row[score.token_id] - TOLERANCE).sum())
            assert score.rank is not None
            assert surely < score.rank <= perhaps + 1
            values = row.topk(4).values.tolist()
            assert [value for _, value in score.top] == pytest.approx(values, abs=TOLERANCE)
            assert [float(row[token]) for token, _ in score.top] == pytest.approx(values, abs=2 * TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_alone_and_in_company_they_are_the_same_to_the_bit(tiny: Tiny, dtype: str) -> None:
    """Also in other pieces, beside prompts that ask for more or nothing, and where prefixes are cached."""
    model, many = tiny("llama"), requests(prompts())
    alone = {}
    for request in many:
        alone[request.id] = scores(run(tiny_engine(model, "native", dtype=dtype), [request])[request.id])
    others = [
        Request(f"other{n}", ids, SamplingParams(max_tokens=5, prompt_logprobs=wanted))
        for n, (ids, wanted) in enumerate(zip(prompts(), [None, 20, 0, 7] * 2, strict=True))
    ]
    for budget in (16, 33, 4096):
        engine = tiny_engine(model, "native", dtype=dtype, max_batched_tokens=budget, max_num_seqs=16)
        for _ in range(2):
            found = run(engine, [*others, *many])
            assert {request.id: scores(found[request.id]) for request in many} == alone
    assert engine.stats().prefix_hits > 0


def test_rows_of_an_adapter_are_scored_with_it(tiny: Tiny) -> None:
    folder = tiny("llama").folder
    ours, oracle = native(folder), reference(folder)
    weights = adapter(ours.spec, 4, 1, ["self_attn.q_proj", "mlp.down_proj"])
    ours.adapt(1, weights)
    adapt(oracle, 1, weights)
    rows = make_rows([30, 40], 128, seed=3, slots=[0, 1])
    for row in rows:
        row.sampling = SamplingParams(max_tokens=1, prompt_logprobs=3)
    spans = [row.span(0, len(row.token_ids), scored=range(2, len(row.token_ids) - 1)) for row in rows]
    got, want = ours.scores(spans).prompts, oracle._model.scores(spans).prompts
    assert got.logprobs == pytest.approx(want.logprobs, abs=TOLERANCE)
    assert len(got.logprobs) == 27 + 37
    plain = ours.scores([rows[0].span(0, 30, scored=range(2, 29))]).prompts
    assert plain.logprobs == got.logprobs[:27]


def test_positions_that_a_step_does_not_compute_are_refused(tiny: Tiny) -> None:
    (row,) = make_rows([30], 128, seed=3)
    for wrong in (range(4, 8), range(5, 21), range(19, 20)):
        with pytest.raises(ValueError, match="scored"):
            native(tiny("llama").folder).scores([row.span(5, 15, scored=wrong)])


def expected(prompt: tuple[int, ...], count: int) -> tuple[TokenLogprob, ...]:
    return tuple(prompt_score(state_after(prompt[:end]), prompt[end], count) for end in range(1, len(prompt)))


@pytest.mark.parametrize("host_blocks", [0, 40])
def test_preempted_in_the_middle_they_are_the_same(host_blocks: int) -> None:
    many = requests([ids for ids in prompts(97) if len(ids) > 40] * 3, max_tokens=60)
    engine = fake_engine(
        FakeRunner(num_blocks=22, num_host_blocks=host_blocks),
        max_batched_tokens=24,
        max_num_seqs=16,
        watermark=0.0,
    )
    found = run(engine, many)
    assert engine.stats().preemptions > 0
    assert (engine.stats().swaps > 0) == (host_blocks > 0)
    for request in many:
        assert scores(found[request.id]) == expected(request.prompt, 4)


@pytest.mark.parametrize(
    "choices", [{"n": 3}, {"n": 2, "best_of": 4, "temperature": 1.0}, {"n": 2, "beam_width": 3}]
)
def test_only_choice_0_brings_them(choices: dict[str, Any]) -> None:
    (request,) = requests([prompts(97)[4]], **choices)
    found = run(fake_engine(FakeRunner()), [request])[request.id]
    assert scores(found) == expected(request.prompt, 4)
    assert {event.index for event in found} == set(range(choices["n"]))


def test_a_cached_prefix_is_not_looked_up_and_is_left_for_others() -> None:
    engine, prompt = fake_engine(FakeRunner()), prompts(97)[5]
    asking, plain = requests([prompt]), requests([prompt], prompt_logprobs=None)
    for _ in range(2):
        found = run(engine, asking)["0"]
        assert scores(found) == expected(prompt, 4)
        assert found[-1].stats is not None
        assert found[-1].stats.cached_tokens == 0
    assert engine.stats().prefix_queries == 0
    last = run(engine, plain)["0"][-1]
    assert last.stats is not None
    assert last.stats.cached_tokens == len(prompt) - 1


def test_a_request_that_ends_before_its_prompt_is_computed_brings_none() -> None:
    engine = fake_engine(FakeRunner(), max_batched_tokens=16, max_num_seqs=4)
    (request,) = requests([prompts(97)[5]])
    engine.add(request)
    engine.step()
    engine.abort(request.id)
    (event,) = engine.step()
    assert (event.finish, event.prompt_logprobs) == ("abort", None)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_prompt_that_is_not_finite_fails_alone(tiny: Tiny, backend: str) -> None:
    huge = math.sqrt(3e38)
    with torch_threads_kept():
        runner = tiny("llama").runner(backend=backend)
    spec = read_spec(tiny("llama").folder)
    pairs = {
        name: LoraPair(torch.full((1, width), huge), torch.full((out, 1), huge), 1.0)
        for name, (out, width) in spec.linear_modules.items()
    }
    adapt(runner, 1, AdapterWeights("sha256:huge", pairs))
    rows = make_rows([20, 30], 128, seed=1, slots=[0, 1])
    for row in rows:
        row.sampling = SamplingParams(max_tokens=1, prompt_logprobs=1)
    spans = [row.span(0, len(row.token_ids) - 1, False, scored=range(len(row.token_ids) - 1)) for row in rows]
    fine, broken = runner.run(StepPlan(tuple(spans))).rows
    assert (fine.error, len(fine.prompt_logprobs)) == (None, 19)
    assert "not finite" in str(broken.error)
