"""Adapters prepared apart and bound to slots, on both backends: beside running steps, and freed in time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import pytest
import torch

from engine.backends import StepModel
from engine.modelspec import read_spec
from engine.records import ScheduledSeq
from engine.reference import ReferenceModel
from tests.unit.engine.conftest import TinyModel
from tests.unit.engine.native_models import NUM_BLOCKS, adapter, make_rows, native

Tiny = Callable[[str], TinyModel]
ALL = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]


def reference_model(model: TinyModel) -> StepModel:
    return ReferenceModel(model.folder, read_spec(model.folder), torch.float32, NUM_BLOCKS, 64)


def native_model(model: TinyModel) -> StepModel:
    return native(model.folder)


backends = pytest.mark.parametrize("backend", [reference_model, native_model])


def spans(lengths: Sequence[int], slots: Sequence[int]) -> tuple[ScheduledSeq, ...]:
    rows = make_rows(lengths, 128, seed=1, slots=slots)
    return tuple(row.span(0, len(row.token_ids)) for row in rows)


def logits(model: StepModel, seqs: Sequence[ScheduledSeq]) -> torch.Tensor:
    return model.scores(seqs).logits.clone()


@backends
def test_one_adapter_has_several_slots_and_comes_back(
    tiny: Tiny, backend: Callable[[TinyModel], StepModel]
) -> None:
    model = backend(tiny("llama"))
    spec = read_spec(tiny("llama").folder)
    first, second = (model.prepare_adapter(adapter(spec, rank, rank, ALL)) for rank in (4, 16))
    assert (first.digest, second.digest) == ("sha256:4", "sha256:16")
    assert second.nbytes > first.nbytes / 2 > 0
    model.bind_adapter(1, first)
    model.bind_adapter(2, second)
    want = logits(model, spans([9, 9], [1, 2]))
    model.bind_adapter(1, second)
    model.bind_adapter(3, first)
    model.unbind_adapter(2)
    model.unbind_adapter(2)
    torch.testing.assert_close(logits(model, spans([9, 9], [3, 1])), want)


@backends
def test_preparing_beside_steps_changes_neither(
    tiny: Tiny, backend: Callable[[TinyModel], StepModel]
) -> None:
    model = backend(tiny("llama"))
    spec = read_spec(tiny("llama").folder)
    weights = [adapter(spec, rank, rank, ALL) for rank in (1, 4, 8, 16)]
    seqs = spans([9, 17, 5], [0, 1, 1])
    model.bind_adapter(1, model.prepare_adapter(weights[0]))
    want = logits(model, seqs)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(model.prepare_adapter, weights[i % 4]) for i in range(40)]
        while not all(each.done() for each in made):
            assert torch.equal(logits(model, seqs), want)
    for number, weight in enumerate(weights):
        model.bind_adapter(2, made[number + 20].result())
        model.bind_adapter(3, model.prepare_adapter(weight))
        assert torch.equal(logits(model, spans([9], [2])), logits(model, spans([9], [3])))


@backends
def test_an_adapter_lives_while_somebody_refers_to_it(
    tiny: Tiny, backend: Callable[[TinyModel], StepModel]
) -> None:
    model = backend(tiny("llama"))
    made = model.prepare_adapter(adapter(read_spec(tiny("llama").folder), 4, 1, ALL))
    alive = ref(made)
    model.bind_adapter(1, made)
    want = logits(model, spans([9], [1]))
    del made
    gc.collect()
    assert alive() is not None
    assert torch.equal(logits(model, spans([9], [1])), want)
    model.unbind_adapter(1)
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("backend", "other"),
    [(reference_model, native_model), (native_model, reference_model), (native_model, native_model)],
)
def test_what_another_model_prepared_is_refused(
    tiny: Tiny, backend: Callable[[TinyModel], StepModel], other: Callable[[TinyModel], StepModel]
) -> None:
    prepared = other(tiny("llama")).prepare_adapter(adapter(read_spec(tiny("llama").folder), 4, 1, ALL))
    model = backend(tiny("llama"))
    with pytest.raises(ValueError, match="adapter 'sha256:1' was prepared by another"):
        model.bind_adapter(1, prepared)
    model.scores(spans([9], [1]))


def test_memory_of_native_adapters_comes_back(tiny: Tiny) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1])

    model = native(tiny("llama").folder)
    weights = adapter(model.spec, 64, 1, ALL)
    for _ in range(10):
        made = model.prepare_adapter(weights)
    before = resident()
    for _ in range(50):
        made = model.prepare_adapter(weights)
    # Each is on huge pages of 2 MiB and more.
    assert made.nbytes > 100_000
    assert resident() - before < 10 * (2 << 20) // 4096
