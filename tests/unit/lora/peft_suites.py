"""Tiny models with adapters that PEFT made, and the sequences that the engine runs with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from engine.adapter_weights import (
    AdapterWeights,
    Affine,
    EmbeddingDelta,
    LoraPair,
    NormWeights,
    TokenRows,
)
from engine.backends import StepModel
from engine.base_tensors import BaseTensors
from engine.dtypes import DTYPES
from engine.modelspec import read_spec
from engine.records import ScheduledSeq
from engine.reference import ReferenceModel
from lora.format import check_against, read_adapter
from lora.weights import load_weights
from tests.unit.engine.conftest import Row, TinyModel, save_tiny
from tests.unit.engine.native_models import NUM_BLOCKS, make_rows, native
from tests.unit.lora.peft_adapters import make_adapter
from tests.unit.lora.peft_features import FEATURES, INVOCATION, TOKENS, rich_set

VOCAB = 128
INVOKED_AT = 6
CHUNKS = 4


@dataclass(frozen=True, eq=False)
class Case:
    """A sequence with its adapter, or the base's. logits: PEFT's own of a sequence, [length, vocab]."""

    name: str
    row: Row
    weights: AdapterWeights | None
    logits: Callable[[list[int]], torch.Tensor]

    @cached_property
    def want(self) -> torch.Tensor:
        """PEFT's logits of the last three tokens, [3, vocab]."""
        return self.logits(self.row.token_ids)[-3:]

    def greedy(self, count: int) -> list[int]:
        """The tokens that PEFT's logits make likeliest, one after another."""
        ids = list(self.row.token_ids)
        for _ in range(count):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids[-count:]

    def chunk(self, number: int) -> ScheduledSeq:
        """Of four: two of the prompt, without and with logits, and two single tokens.

        The first ends where an activated adapter is invoked, and is the base's.
        """
        length = len(self.row.token_ids)
        edges = [0, INVOKED_AT, length - 2, length - 1, length]
        span = self.row.span(edges[number], edges[number + 1] - edges[number], samples=number > 0)
        asleep = number == 0 and self.weights is not None and self.weights.invocation
        return replace(span, adapter_slot=0) if asleep else span


@dataclass(frozen=True)
class Suite:
    """Cases of one tiny model, each adapter in the slot of its row."""

    model: TinyModel
    cases: list[Case]


def make_suite(name: str, root: Path) -> Suite:
    """The features of that tiny model, or the rich set of its family, and two sequences of the base."""
    model = save_tiny(name, root)
    spec = read_spec(model.folder)
    configs = FEATURES.get(name) or rich_set(spec)
    names = [*configs, "base", "base again"]
    slots = [*range(1, len(configs) + 1), 0, 0]
    rows = make_rows([12 + 5 * number % 19 for number in range(len(names))], VOCAB, seed=5, slots=slots)
    cases = []
    for case, row in zip(names, rows, strict=True):
        row.token_ids[:12] = [*INVOCATION, *TOKENS[:3], *INVOCATION, *TOKENS[1:]]
        if case not in configs:
            cases.append(Case(case, row, None, model.logits))
            continue
        adapter = make_adapter(model, root / f"adapter-{row.adapter_slot}", row.adapter_slot, configs[case])
        cases.append(Case(case, row, read_back(model, adapter.folder), adapter.logits))
    return Suite(model, cases)


def read_back(model: TinyModel, folder: Path) -> AdapterWeights:
    """A folder as the platform reads it for this model."""
    spec, adapter = read_spec(model.folder), read_adapter(folder)
    checks: dict[str, Any] = {"base_digest": "sha256:" + "b" * 64, "base_names": (str(model.folder),)}
    report = check_against(adapter, spec.adapter_targets, **checks, max_rank=64)
    return load_weights(adapter, report, spec.adapter_targets, BaseTensors(model.folder), torch.float32)


def open_model(suite: Suite, backend: str, dtype: str = "float32", **settings: Any) -> StepModel:
    """The model on a backend, with all adapters in their slots."""
    folder = suite.model.folder
    model: StepModel = (
        native(folder, dtype=dtype, **settings)
        if backend == "native"
        else ReferenceModel(folder, read_spec(folder), DTYPES[dtype], NUM_BLOCKS, 64)
    )
    for case in suite.cases:
        bind(model, case, case.weights)
    return model


def bind(model: StepModel, case: Case, weights: AdapterWeights | None) -> None:
    """Into the slot of the case."""
    if weights is not None:
        model.bind_adapter(case.row.adapter_slot, model.prepare_adapter(weights))


def run(model: StepModel, cases: Sequence[Case]) -> torch.Tensor:
    """Logits of the last three tokens, [cases, 3, vocab]."""
    made = [model.scores([case.chunk(number) for case in cases]).logits.clone() for number in range(CHUNKS)]
    return torch.stack(made[1:], dim=1)


def huge(weights: AdapterWeights | None) -> AdapterWeights | None:
    """The same parts with numbers that are finite, while hardly anything computed from them is."""
    if weights is None:
        return None
    embedding, tokens = weights.embedding, weights.tokens
    return replace(
        weights,
        modules={name: LoraPair(_huge(pair.a), _huge(pair.b), 1.0) for name, pair in weights.modules.items()},
        affine={
            name: Affine(_huge(affine.gain), _huge(affine.shift)) for name, affine in weights.affine.items()
        },
        norms={
            name: NormWeights(_huge(norm.weight), _huge(norm.bias)) for name, norm in weights.norms.items()
        },
        embedding=embedding
        and EmbeddingDelta(_huge(embedding.a), _huge(embedding.b), 1.0, _huge(embedding.gain)),
        table=_huge(weights.table),
        head=_huge(weights.head),
        tokens=tokens and TokenRows(tokens.ids, _huge(tokens.rows), tokens.in_head),
    )


def _huge(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else torch.full_like(tensor, 3e38)
