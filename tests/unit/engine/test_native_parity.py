"""The native backend computes what transformers and the reference backend compute, for every architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.errors import NativeUnavailable
from engine.modelspec import read_spec
from engine.native.levels import Level
from engine.native.model import NativeModel
from engine.runner import Runner
from tests.unit.engine.conftest import VARIANTS, Row, TinyModel
from tests.unit.engine.family_variants import FAMILY_VARIANTS
from tests.unit.engine.native_models import KeptLogits, make_rows, native, reference

TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}
Tiny = Callable[[str], TinyModel]


def stepped(model: KeptLogits | Runner, row: Row, pieces: list[int]) -> Iterator[torch.Tensor]:
    """Logits [1, vocab] of the last token of each piece."""
    start = 0
    for count in pieces:
        yield model.logits((row.span(start, count),))
        start += count


def fed(model: KeptLogits, row: Row, pieces: list[int]) -> torch.Tensor:
    """The same, [pieces, vocab]."""
    return torch.cat(list(stepped(model, row, pieces)))


def row_error(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """How far the logits of the median row are off: some of a mixture's meet other experts."""
    return (got - want).abs().mean(-1).median()


@pytest.mark.parametrize("name", [*VARIANTS, *FAMILY_VARIANTS])
@pytest.mark.parametrize("level", ["best", "avx2"])
@pytest.mark.parametrize(
    "pieces",
    [[70], [32, 16, 22], [5, 40, 1, 24], [50] + [1] * 20],
    ids=["whole", "aligned chunks", "ragged chunks", "decode"],
)
def test_logits_equal_transformers(tiny: Tiny, name: str, level: Level, pieces: list[int]) -> None:
    model = tiny(name)
    (row,) = make_rows([70], 128, seed=1)
    got = fed(native(model.folder, level=level), row, pieces)
    ends = torch.tensor(pieces).cumsum(0) - 1
    torch.testing.assert_close(got, model.logits(row.token_ids)[ends], **TOLERANCE)


@pytest.mark.parametrize("name", [*VARIANTS, *FAMILY_VARIANTS])
@pytest.mark.parametrize("level", ["best", "avx2"])
def test_bfloat16_stays_near_float32(tiny: Tiny, name: str, level: Level) -> None:
    model, pieces = tiny(name), [30] + [1] * 10 + [20]
    rows, ends = make_rows([60] * 3, 128, seed=2), torch.tensor(pieces).cumsum(0) - 1
    ours = native(model.folder, dtype="bfloat16", level=level)
    got = torch.cat([fed(ours, row, pieces) for row in rows])
    want = torch.cat([model.logits(row.token_ids)[ends] for row in rows])
    # Eight bits of mantissa in weights, operands and cache move these random models by 1 to 4 % of their
    # logits' spread; the residual stream in float32 keeps it under what the reference backend loses.
    error = row_error(got, want)
    assert error < 0.05 * want.std()
    runner = reference(model.folder, "bfloat16")
    theirs = torch.cat([logits for row in rows for logits in stepped(runner, row, pieces)])
    assert error < row_error(theirs, want)


@pytest.mark.parametrize("name", ["llama", "mistral-window", "qwen2", "qwen3"])
def test_greedy_tokens_equal_generate(tiny: Tiny, name: str) -> None:
    model, ours = tiny(name), native(tiny(name).folder)
    (row,) = make_rows([40], 128, seed=3)
    row.token_ids = [5, 9, 31, 77, 4, 12, 60]
    start = 0
    for _ in range(30):
        logits = ours.logits((row.span(start, len(row.token_ids) - start),))
        start = len(row.token_ids)
        row.token_ids.append(int(logits[0].argmax()))
    want = model.reference.generate(
        torch.tensor([row.token_ids[:7]]),
        max_new_tokens=30,
        min_new_tokens=30,
        do_sample=False,
        eos_token_id=-1,
    )
    assert row.token_ids == want[0].tolist()


def test_rows_come_in_the_order_of_the_sequences_that_sample(tiny: Tiny) -> None:
    model = tiny("llama")
    rows = make_rows([3, 66, 17, 40, 33], 128, seed=4)
    batch = tuple(row.span(0, len(row.token_ids), samples=row.seq_id != 2) for row in rows)
    got = native(model.folder).logits(batch)
    want = torch.stack([model.logits(row.token_ids)[-1] for row in rows if row.seq_id != 2])
    torch.testing.assert_close(got, want, **TOLERANCE)


def test_step_in_which_nothing_samples(tiny: Tiny) -> None:
    ours = native(tiny("llama").folder)
    (row,) = make_rows([20], 128, seed=5)
    assert ours.logits((row.span(0, 12, samples=False),)).shape == (0, 128)
    got = ours.logits((row.span(12, 8),))[0]
    torch.testing.assert_close(got, tiny("llama").logits(row.token_ids)[-1], **TOLERANCE)


def test_steps_larger_than_any_before_make_room(tiny: Tiny) -> None:
    model, ours = tiny("llama"), native(tiny("llama").folder)
    for length in (3, 230, 100):
        (row,) = make_rows([length], 128, seed=length)
        got = ours.logits((row.span(0, length),))[0]
        torch.testing.assert_close(got, model.logits(row.token_ids)[-1], **TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_another_sequence_left_in_a_block_is_never_seen(tiny: Tiny, dtype: str) -> None:
    """A block is reused without being cleared, after values that are not finite as well."""
    folder = tiny("qwen2").folder
    dirty, clean = native(folder, dtype=dtype), native(folder, dtype=dtype)
    (row,) = make_rows([21], 128, seed=6)
    poison = Row(1, [5] * 32, row.block_table)
    dirty.logits((poison.span(0, 32),))
    _fill_cache_with_nan(dirty, row)
    pieces = [9, 1, 1, 10]
    assert torch.equal(fed(dirty, row, pieces), fed(clean, row, pieces))


def _fill_cache_with_nan(model: KeptLogits, row: Row) -> None:
    """An adapter whose deltas overflow makes keys and values that are no numbers."""
    spec = model.spec
    pairs = {
        name: LoraPair(torch.full((1, width), 3e38), torch.full((out, 1), 3e38), 1.0)
        for name, (out, width) in spec.linear_modules.items()
    }
    model.adapt(1, AdapterWeights("sha256:huge", pairs))
    bad = Row(2, [7] * 32, row.block_table, adapter_slot=1)
    assert not model.logits((bad.span(0, 32),)).isfinite().all()
    model.unbind_adapter(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": [3, 128]}, r"token_ids lie in 3 \.\. 128; the model has 0 \.\. 127"),
        ({"token_ids": [-1, 3]}, r"token_ids lie in -1 \.\. 3"),
        ({"token_ids": [3]}, "fewer tokens"),
        ({"block_table": [192]}, r"blocks lie in 192 \.\. 192; the model has 0 \.\. 191"),
        ({"block_table": []}, "shorter than its sequence"),
        ({"count": 0}, "at least one token"),
    ],
)
def test_numbers_that_would_reach_outside_are_refused(
    tiny: Tiny, change: dict[str, Any], message: str
) -> None:
    span = Row(0, [3, 4], [5]).span(0, 2)
    with pytest.raises(ValueError, match=message):
        native(tiny("llama").folder).logits((replace(span, **change),))


def test_heads_too_large_for_the_kernels_are_refused(tiny: Tiny) -> None:
    spec = replace(read_spec(tiny("llama").folder), head_dim=258)
    with pytest.raises(NativeUnavailable, match="head_dim is 258; the kernels take even ones up to 256"):
        NativeModel(spec, torch.float32, 8, max_rank=8, threads=1)
