"""What an adapter holds comes in the form a model needs, or is refused with numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.adapter_fit import AdapterFit
from engine.adapter_targets import AdapterTargets
from engine.adapter_weights import (
    AdapterWeights,
    Affine,
    EmbeddingDelta,
    LoraPair,
    NormWeights,
    TokenRows,
)
from engine.errors import AdapterMismatch, AdapterTooLarge

TARGETS = AdapterTargets(
    linear={"lm_head": (10, 4), "h.0.fc": (6, 4)},
    biases={"h.ln": 4},
    norms={"norm": 4, "h.ln": 4},
    embedding="embed",
    vocab=10,
    hidden=4,
    tied=True,
)
FIT = AdapterFit("sha256:1", TARGETS, torch.bfloat16, max_rank=8)
PAIR = LoraPair(torch.ones(2, 4), torch.ones(10, 2), 1.0)
ROWS = TokenRows(torch.tensor([3, 7]), torch.ones(2, 4), in_head=True)
NAN = torch.full((4,), torch.nan)


def tokens(*ids: int, dtype: torch.dtype = torch.int64) -> TokenRows:
    return TokenRows(torch.tensor(ids, dtype=dtype), torch.ones(len(ids), 4), in_head=False)


def test_parts_come_in_the_dtype_asked_for() -> None:
    weight, bias = FIT.norm("h.ln", NormWeights(torch.ones(4), torch.zeros(4)))
    assert bias is not None
    assert (weight.dtype, bias.dtype) == (torch.bfloat16, torch.bfloat16)
    assert FIT.norm("norm", NormWeights(torch.ones(4)))[1] is None
    assert FIT.matrix("the head", torch.ones(10, 4)).dtype is torch.bfloat16
    gain, shift = FIT.affine("lm_head", Affine(gain=torch.ones(10, dtype=torch.bfloat16)))
    assert gain is not None
    assert (gain.dtype, shift) == (torch.float32, None)
    ids, rows = FIT.tokens(ROWS)
    assert (ids.tolist(), rows.dtype) == ([3, 7], torch.bfloat16)


def test_scale_of_a_pair_is_in_b() -> None:
    a, b = FIT.pair("h.0.fc", LoraPair(torch.ones(2, 4), torch.full((6, 2), 3.0), 0.5))
    assert torch.equal(b, torch.full((6, 2), 1.5, dtype=torch.bfloat16))
    assert (a.shape, a.dtype) == ((2, 4), torch.bfloat16)


def test_the_whole_is_all_of_its_parts() -> None:
    given = AdapterWeights(
        "sha256:1",
        {"h.0.fc": LoraPair(torch.ones(2, 4), torch.ones(6, 2), 3.0)},
        affine={"h.0.fc": Affine(shift=torch.ones(6))},
        norms={"norm": NormWeights(torch.ones(4))},
        embedding=EmbeddingDelta(torch.ones(2, 10), torch.ones(4, 2), 2.0, torch.ones(4)),
        table=torch.ones(10, 4),
        tokens=ROWS,
        invocation=(3, 4),
    )
    got = FIT.whole(given)
    assert (got.modules["h.0.fc"].scale, got.modules["h.0.fc"].b[0, 0]) == (1.0, 3.0)
    assert got.embedding is not None
    assert (got.embedding.scale, got.embedding.b[0, 0]) == (1.0, 2.0)
    assert (got.digest, got.invocation, got.head) == ("sha256:1", (3, 4), None)
    assert (got.affine.keys(), got.norms.keys()) == (given.affine.keys(), given.norms.keys())
    assert got.table is not None
    assert got.tokens is not None
    assert got.tokens.in_head
    # Of 16 bits each, but for gain, shift and the ids.
    assert got.nbytes == 2 * (8 + 12 + 4 + 20 + 8 + 40 + 8) + 4 * (6 + 4) + 8 * 2


def test_scale_of_an_embedding_is_in_b() -> None:
    a, b, gain = FIT.embedding(EmbeddingDelta(torch.ones(2, 10), torch.full((4, 2), 3.0), 0.5, torch.ones(4)))
    assert torch.equal(b, torch.full((4, 2), 1.5, dtype=torch.bfloat16))
    assert a.shape == (2, 10)
    assert gain is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FIT.norm("x", NormWeights(NAN)), "replaces norm x, which the model does not have"),
        (lambda: FIT.norm("norm", NormWeights(torch.ones(5))), r"weight of norm has shape \[5\]; .* \[4\]"),
        (lambda: FIT.norm("norm", NormWeights(NAN)), "weight of norm has values that are not finite"),
        (lambda: FIT.norm("h.ln", NormWeights(torch.ones(4))), "has a bias in the model; .* none"),
        (lambda: FIT.norm("norm", NormWeights(torch.ones(4), NAN)), "has no bias in the model; .* one"),
        (lambda: FIT.norm("h.ln", NormWeights(torch.ones(4), NAN)), "bias of h.ln has values"),
        (lambda: FIT.affine("y", Affine()), "changes module y, which the model does not have"),
        (lambda: FIT.affine("h.0.fc", Affine(gain=NAN)), r"gain of h.0.fc has shape \[4\]; .* \[6\]"),
        (lambda: FIT.affine("h.0.fc", Affine(shift=NAN)), "shift of h.0.fc has shape"),
        (lambda: FIT.pair("h.0.x", PAIR), "changes module h.0.x, which the model does not have"),
        (lambda: FIT.pair("h.0.fc", PAIR), r"B of h.0.fc has shape \[10, 2\]; the model needs \[6, 2\]"),
        (lambda: FIT.pair("lm_head", replace(PAIR, a=torch.ones(2, 5))), r"A of lm_head has shape \[2, 5\]"),
        (
            lambda: FIT.pair("h.0.fc", LoraPair(torch.ones(0, 4), torch.ones(6, 0), 1.0)),
            "has rank 0; at least 1",
        ),
        (lambda: FIT.pair("lm_head", replace(PAIR, scale=3.4e38 * 2)), "B of lm_head .* not finite"),
        (lambda: FIT.matrix("the head", torch.ones(9, 4)), r"the head has shape \[9, 4\]; .* \[10, 4\]"),
        (lambda: FIT.matrix("the head", torch.full((10, 4), 3.4e38)), "not finite as torch.bfloat16"),
        (lambda: FIT.tokens(tokens(3, 10)), r"lie in 3 \.\. 10; the model has 0 \.\. 9"),
        (lambda: FIT.tokens(tokens(-1, 3)), r"lie in -1 \.\. 3"),
        (lambda: FIT.tokens(tokens(3, 3)), "do not ascend"),
        (lambda: FIT.tokens(tokens(4, 3)), "do not ascend"),
        (lambda: FIT.tokens(tokens()), r"shape \[0\]"),
        (lambda: FIT.tokens(tokens(1, dtype=torch.int32)), "dtype torch.int32"),
        (lambda: FIT.tokens(replace(ROWS, rows=torch.ones(3, 4))), r"rows of tokens has shape \[3, 4\]"),
        (lambda: FIT.embedding(EmbeddingDelta(torch.ones(2, 9), torch.ones(4, 2), 1.0)), r"A of embed"),
        (lambda: FIT.embedding(EmbeddingDelta(torch.ones(2, 10), torch.ones(4, 3), 1.0)), r"B of embed"),
        (
            lambda: FIT.embedding(EmbeddingDelta(torch.ones(2, 10), torch.ones(4, 2), 1.0, NAN)),
            "gain of embed",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(AdapterMismatch, match=f"sha256:1.*{message}"):
        call()


def test_ranks_are_bounded() -> None:
    with pytest.raises(AdapterTooLarge, match="rank 9; at most 8"):
        FIT.embedding(EmbeddingDelta(torch.ones(9, 10), torch.ones(4, 9), 1.0))
    with pytest.raises(AdapterTooLarge, match="rank 9; at most 8"):
        FIT.pair("h.0.fc", LoraPair(torch.ones(9, 4), torch.ones(6, 9), 1.0))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (AdapterWeights("d", {"lm_head": PAIR}, head=torch.ones(10, 4)), "replaced and changed"),
        (
            AdapterWeights("d", {}, affine={"lm_head": Affine()}, head=torch.ones(10, 4)),
            "replaced and changed",
        ),
        (AdapterWeights("d", {"lm_head": PAIR}, tokens=ROWS), "which is changed itself"),
        (AdapterWeights("d", {}, head=torch.ones(10, 4), tokens=ROWS), "which is changed itself"),
    ],
)
def test_contradictions_are_refused(weights: AdapterWeights, message: str) -> None:
    with pytest.raises(AdapterMismatch, match=message):
        FIT.check_combination(weights)


def test_rows_for_the_head_need_one_table() -> None:
    untied = replace(FIT, targets=replace(TARGETS, tied=False))
    untied.check_combination(AdapterWeights("d", {}, tokens=replace(ROWS, in_head=False)))
    with pytest.raises(AdapterMismatch, match="a matrix of its own"):
        untied.check_combination(AdapterWeights("d", {}, tokens=ROWS))
