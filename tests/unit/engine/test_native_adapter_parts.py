"""Embeddings, norms, heads and single tokens of adapters, natively: as if merged, for their own rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from engine.adapter_targets import AdapterTargets
from engine.adapter_weights import AdapterWeights, EmbeddingDelta, NormWeights
from engine.dtypes import DTYPES
from engine.errors import AdapterMismatch, AdapterTooLarge
from engine.modelspec import read_spec
from engine.native.levels import Level
from engine.reference import ReferenceModel
from tests.unit.engine.adapter_oracle import ALL_WAYS, drawn, merged
from tests.unit.engine.conftest import Row, TinyModel
from tests.unit.engine.native_adapters import (
    KINDS,
    TOLERANCE,
    assert_pieces_equal_the_whole,
    bound,
    kinds,
    levels,
    whole,
)
from tests.unit.engine.native_models import NUM_BLOCKS, KeptLogits, make_rows, native

Tiny = Callable[[str], TinyModel]
LENGTHS = [9, 17, 5, 30, 12, 21, 8]
SLOTS = [1, 0, 2, 1, 3, 2, 0]
FAMILIES = ["llama", "llama-tied", "qwen3", "gemma2", "gemma3", "phi3", "gpt2", "opt", "mixtral", "qwen3-moe"]


def targets_of(model: TinyModel) -> AdapterTargets:
    return read_spec(model.folder).adapter_targets


def three(targets: AdapterTargets) -> dict[int, AdapterWeights]:
    """Between them they hold everything, each in a slot."""
    return {slot: drawn(targets, slot, parts, rank=3 + slot) for slot, parts in enumerate(ALL_WAYS, start=1)}


def in_pieces(model: KeptLogits, rows: Sequence[Row]) -> torch.Tensor:
    """Prompts together but for their last two tokens, which come one by one."""
    for left in (2, 1, 0):
        spans = []
        for row in rows:
            end = len(row.token_ids) - left
            start = 0 if left == 2 else end - 1
            spans.append(row.span(start, end - start))
        logits = model.logits(spans)
    return logits


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_are_those_of_the_merged_model(tiny: Tiny, name: str) -> None:
    model, targets = tiny(name), targets_of(tiny(name))
    adapters = three(targets)
    oracles = {slot: merged(model, targets, weights) for slot, weights in adapters.items()}
    rows = make_rows(LENGTHS, 128, seed=1, slots=SLOTS)
    want = [
        oracles.get(row.adapter_slot, model.reference)(torch.tensor([row.token_ids])).logits[0, -1]
        for row in rows
    ]
    ours = bound(native(model.folder), adapters)
    torch.testing.assert_close(whole(ours, rows), torch.stack(want), **TOLERANCE)
    torch.testing.assert_close(in_pieces(ours, rows), torch.stack(want), **TOLERANCE)


@levels
@pytest.mark.parametrize("name", ["llama-tied", "gemma3", "opt"])
def test_levels_and_dtypes_stay_near_the_reference_backend(tiny: Tiny, name: str, level: Level) -> None:
    folder, adapters = tiny(name).folder, three(targets_of(tiny(name)))
    rows = make_rows(LENGTHS, 128, seed=2, slots=SLOTS)
    theirs = ReferenceModel(folder, read_spec(folder), torch.float32, NUM_BLOCKS, 64)
    want = whole(bound(theirs, adapters), rows)
    got = whole(bound(native(folder, level=level), adapters), rows)
    torch.testing.assert_close(got, want, **TOLERANCE)
    near = whole(bound(native(folder, level=level, dtype="bfloat16"), adapters), rows)
    assert ((near - want).abs().mean(-1) < 0.06 * want.std(-1)).all()


@kinds
@levels
@pytest.mark.parametrize("name", ["llama-tied", "llama", "gemma2", "qwen3-moe"])
def test_other_rows_are_the_same_to_the_bit(tiny: Tiny, name: str, kind: str, level: Level) -> None:
    model = native(tiny(name).folder, level=level, **KINDS[kind])
    rows = make_rows([*LENGTHS, *[3] * 14], 128, seed=3, slots=[*SLOTS, *[0, 3] * 7])
    base = [row for row in rows if row.adapter_slot == 0]
    want = whole(model, base)
    bound(model, three(targets_of(tiny(name))))
    assert torch.equal(whole(model, base), want)
    together = whole(model, rows)
    assert torch.equal(together[[row.adapter_slot == 0 for row in rows]], want)
    alone = torch.cat([whole(model, [row]) for row in rows])
    assert torch.equal(together, alone)
    assert len({tuple(row.tolist()) for row in together}) == len(rows)


@kinds
@levels
def test_pieces_equal_the_whole(tiny: Tiny, kind: str, level: Level) -> None:
    model = native(tiny("llama-tied").folder, level=level, **KINDS[kind])
    bound(model, three(targets_of(tiny("llama-tied"))))
    rows = make_rows([60, 41, 50], 128, seed=4, slots=[1, 2, 3])
    assert_pieces_equal_the_whole(model, rows)


@kinds
def test_number_of_threads_changes_nothing(tiny: Tiny, kind: str) -> None:
    adapters = three(targets_of(tiny("llama-tied")))
    rows = make_rows([*LENGTHS, *LENGTHS, *LENGTHS], 128, seed=6, slots=SLOTS * 3)
    found = [
        whole(bound(native(tiny("llama-tied").folder, threads=threads, **KINDS[kind]), adapters), rows)
        for threads in (1, 2, 5)
    ]
    assert all(torch.equal(logits, found[0]) for logits in found)


@kinds
@levels
def test_the_models_own_head_and_norms_change_nothing(tiny: Tiny, kind: str, level: Level) -> None:
    """In int8 the head of an adapter is quantised as the model's is."""
    tiny_model = tiny("llama")
    state = tiny_model.reference.state_dict()
    model = native(tiny_model.folder, level=level, **KINDS[kind])
    norms = {name: NormWeights(state[f"{name}.weight"]) for name in targets_of(tiny_model).norms}
    same = AdapterWeights(
        "d",
        {},
        norms=norms,
        table=state["model.embed_tokens.weight"],
        head=state["lm_head.weight"],
    )
    bound(model, {1: same})
    base, own = (make_rows(LENGTHS, 128, seed=7, slots=[slot] * 7) for slot in (0, 1))
    assert torch.equal(whole(model, own), whole(model, base))


@kinds
def test_hundreds_of_sampled_rows_are_as_a_few(tiny: Tiny, kind: str) -> None:
    """More than the product takes at a time, of every adapter."""
    settings: dict[str, Any] = {**KINDS[kind], "dtype": DTYPES[KINDS[kind]["dtype"]]}
    model = KeptLogits(read_spec(tiny("llama").folder), num_blocks=900, max_rank=64, threads=2, **settings)
    model.load(tiny("llama").folder)
    bound(model, three(targets_of(tiny("llama"))))
    rows = [Row(i, [i % 128], [i], adapter_slot=i % 4) for i in range(900)]
    assert torch.equal(
        whole(model, rows), torch.cat([whole(model, rows[i : i + 60]) for i in range(0, 900, 60)])
    )


def test_tokens_of_the_adapter_alone_have_rows_of_their_own(tiny: Tiny) -> None:
    """A text without such tokens is the base's; where the head is another table, so are their logits."""
    targets = targets_of(tiny("llama"))
    weights = drawn(targets, 1, ["tokens"])
    assert weights.tokens is not None
    model = bound(native(tiny("llama").folder), {1: weights})
    own = set(weights.tokens.ids.tolist())
    base, plain, changed = make_rows([12, 12, 12], 128, seed=8, slots=[0, 1, 1])
    base.token_ids = plain.token_ids = [token for token in range(40) if token not in own][:12]
    changed.token_ids = [*plain.token_ids[:-1], min(own)]
    got = whole(model, [base, plain, changed])
    assert torch.equal(got[0], got[1])
    assert not torch.allclose(got[1], got[2], atol=0.1)


@pytest.mark.parametrize("parts", ALL_WAYS)
def test_likeliest_token_is_chosen_after_all_changes(tiny: Tiny, parts: Sequence[str]) -> None:
    """Gemma's soft cap comes between the two."""
    model = native(tiny("gemma2").folder)
    bound(model, {1: drawn(targets_of(tiny("gemma2")), 1, parts)})
    rows = make_rows(LENGTHS, 128, seed=9, slots=[1, 0, 1, 1, 0, 1, 1])
    scores = model.scores([row.span(0, len(row.token_ids)) for row in rows])
    assert scores.best == scores.logits.argmax(-1).tolist()
    assert scores.logits.abs().max() < 8.0


def test_rows_that_nobody_samples_ask_for_no_head(tiny: Tiny) -> None:
    model = bound(native(tiny("llama-tied").folder), three(targets_of(tiny("llama-tied"))))
    rows = make_rows(LENGTHS, 128, seed=10, slots=SLOTS)
    silent = model.logits([row.span(0, len(row.token_ids) - 1, samples=False) for row in rows])
    assert silent.shape[0] == 0
    last = model.logits([row.span(len(row.token_ids) - 1, 1) for row in rows])
    assert torch.equal(last, whole(model, rows))


def test_bytes_of_every_part_are_counted(tiny: Tiny) -> None:
    model = native(tiny("llama-tied").folder, dtype="bfloat16")
    targets = targets_of(tiny("llama-tied"))
    vocab, hidden, norms = targets.vocab, targets.hidden, len(targets.norms)
    found = {
        parts: model.prepare_adapter(drawn(targets, 1, [parts], rank=4)).nbytes
        for parts in ("table", "head", "norms", "embedding", "pair", "affine", "tokens")
    }
    rows, padded = vocab // 4, 64
    assert found == {
        "table": 2 * vocab * hidden,
        "head": 2 * vocab * hidden,
        "norms": 4 * norms * padded,
        "embedding": 2 * 4 * (vocab + hidden) + 4 * hidden,
        # A's rows are whole cache lines, and each block of B says where it is.
        "pair": 4 * 128 + 2 * 4 * vocab + 12 * (vocab // 16 + 1),
        "affine": 2 * 4 * vocab,
        "tokens": 2 * 2 * rows * hidden,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": torch.ones(128, 47)}, r"token table has shape \[128, 47\]; the model needs \[128, 48\]"),
        ({"head": torch.full((128, 48), torch.inf)}, "head's matrix has values that are not finite"),
        ({"norms": {"model.layers.9.input_layernorm": NormWeights(torch.ones(48))}}, "norm model.layers.9"),
    ],
)
def test_what_does_not_fit_is_refused(tiny: Tiny, change: dict[str, Any], message: str) -> None:
    model = native(tiny("llama").folder)
    with pytest.raises(AdapterMismatch, match=f"sha256:1.*{message}"):
        model.prepare_adapter(AdapterWeights("sha256:1", {}, **change))


def test_rank_of_an_embedding_is_bounded(tiny: Tiny) -> None:
    model = native(tiny("llama").folder, max_rank=8)
    wide = EmbeddingDelta(torch.ones(9, 128), torch.ones(48, 9), 1.0)
    with pytest.raises(AdapterTooLarge, match="rank 9; at most 8"):
        model.prepare_adapter(AdapterWeights("d", {}, embedding=wide))
