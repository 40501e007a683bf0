"""The likeliest token as the library finds it, beside NumPy's; and numbers of a step laid out for it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.config import blocks_for
from engine.native.batch import StepArrays
from engine.native.levels import Level
from engine.ranking import likeliest, rank
from engine.sampling import SamplingParams
from engine.scores import ranked
from tests.unit.engine.native_models import Shape, make_rows, native, save_drawn

LENGTHS = [7, 1, 19, 4]


def drawn(folder: Path, vocab: int, twins: Sequence[tuple[int, int]] = ()) -> Path:
    """A model folder; the head's row of each second token is a copy of the first one's."""
    save_drawn(Shape(vocab=vocab), folder)
    weights = load_file(folder / "model.safetensors")
    for one, other in twins:
        weights["lm_head.weight"][other] = weights["lm_head.weight"][one]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("level", ["best", "avx2"])
@pytest.mark.parametrize("vocab", [48, 63, 512, 1041, 1536])
def test_the_best_token_is_that_of_numpy(tmp_path: Path, vocab: int, level: Level) -> None:
    model = native(drawn(tmp_path, vocab), level=level)
    rows = make_rows(LENGTHS, vocab, seed=vocab)
    scores = model.scores([row.span(0, len(row.token_ids)) for row in rows])
    assert scores.best == scores.logits.numpy().argmax(axis=-1).tolist()


@pytest.mark.parametrize("level", ["best", "avx2"])
def test_of_equal_logits_the_lowest_id_wins(tmp_path: Path, level: Level) -> None:
    """A head of one repeated row: every token is as likely as every other, also across stretches."""
    same = [(0, other) for other in range(1, 1100)]
    model = native(drawn(tmp_path / "same", 1100, same), level=level)
    rows = make_rows(LENGTHS, 1100, seed=1)
    assert model.scores([row.span(0, len(row.token_ids)) for row in rows]).best == [0] * 4
    halves = [(low, low + 550) for low in range(550)]
    model = native(drawn(tmp_path / "halves", 1100, halves), level=level)
    scores = model.scores([row.span(0, len(row.token_ids)) for row in rows])
    assert scores.best == scores.logits[:, :550].numpy().argmax(axis=-1).tolist()


@pytest.mark.parametrize("level", ["best", "avx2"])
def test_a_row_that_is_not_finite_has_no_best_token(tmp_path: Path, level: Level) -> None:
    model = native(drawn(tmp_path, 600), level=level)
    huge = {
        name: LoraPair(torch.full((1, width), 3e38), torch.full((out, 1), 3e38), 1.0)
        for name, (out, width) in model.spec.linear_modules.items()
    }
    model.adapt(1, AdapterWeights("sha256:huge", huge))
    rows = make_rows(LENGTHS, 600, seed=2, slots=[0, 1, 0, 1])
    scores = model.scores([row.span(0, len(row.token_ids)) for row in rows])
    assert not scores.logits[1].isfinite().all()
    assert [token == -1 for token in scores.best] == [False, True, False, True]
    assert scores.best == ranked(scores.logits).best


@pytest.mark.parametrize("level", ["best", "avx2"])
@pytest.mark.parametrize("place", [0, 511, 512, 600])
def test_one_logit_that_is_not_finite_is_enough(tmp_path: Path, place: int, level: Level) -> None:
    """Weights of the head so large that one token's logit overflows in every row."""
    folder = drawn(tmp_path, 601)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"][place] = 3e38
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    rows = make_rows([3, 9], 601, seed=3)
    scores = native(folder, level=level).scores([row.span(0, len(row.token_ids)) for row in rows])
    assert scores.logits.isfinite().sum() == 2 * 600
    assert scores.best == [-1, -1]


def test_steps_of_changing_size_share_memory_and_nothing_else(tmp_path: Path) -> None:
    model = native(drawn(tmp_path, 96))
    rows = make_rows(LENGTHS, 96, seed=5)
    alone = [model.scores([row.span(0, len(row.token_ids))]).logits.clone() for row in rows]
    for count in (4, 1, 2, 0, 3, 4):
        spans = [row.span(0, len(row.token_ids), samples=row.seq_id < count) for row in rows]
        scores = model.scores(spans)
        assert torch.equal(scores.logits, torch.cat([torch.empty(0, 96), *alone[:count]]))
        assert scores.best == scores.logits.numpy().argmax(axis=-1).tolist()


def test_rows_that_do_not_sample_have_no_best_token(tmp_path: Path) -> None:
    model = native(drawn(tmp_path, 64))
    rows = make_rows(LENGTHS, 64, seed=4)
    spans = [row.span(0, len(row.token_ids), samples=row.seq_id % 2 == 1) for row in rows]
    scores = model.scores(spans)
    assert len(scores.best) == 2
    assert scores.best == scores.logits.numpy().argmax(axis=-1).tolist()
    assert model.scores([row.span(0, 1, samples=False) for row in rows]).best == []


@pytest.mark.parametrize("lengths", [[5, 1], [33], [1, 1, 1, 40], [2]])
def test_the_numbers_of_a_step_are_those_of_its_sequences(lengths: list[int]) -> None:
    rows = make_rows(lengths, 64, seed=len(lengths), slots=range(len(lengths)))
    spans = [row.span(len(row.token_ids) // 2, 1, samples=row.seq_id != 1) for row in rows]
    arrays = StepArrays(spans, vocab=64, groups=1, num_blocks=192, positions=None)
    tables = [span.block_table[: blocks_for(span.start + 1)] for span in spans]
    want = {
        "starts": [length // 2 for length in lengths],
        "counts": [1] * len(lengths),
        "slots": list(range(len(lengths))),
        "samples": [number != 1 for number in range(len(lengths))],
        "token_ids": [span.token_ids[span.start] for span in spans],
        "block_counts": [len(table) for table in tables],
        "blocks": [block for table in tables for block in table],
    }
    for name, values in want.items():
        at = ctypes.cast(getattr(arrays.batch, name), ctypes.POINTER(ctypes.c_int32))
        assert at[: len(values)] == values, name
    assert arrays.samples == sum(want["samples"])


@pytest.mark.parametrize("level", ["best", "avx2"])
@pytest.mark.parametrize("vocab", [48, 63, 512, 1041, 1536])
def test_scored_positions_say_what_their_logits_say(tmp_path: Path, vocab: int, level: Level) -> None:
    """Also of tokens that are as likely as others, whose places in the order are those of their ids."""
    twins = [(low, low + vocab // 2) for low in range(vocab // 3)]
    model = native(drawn(tmp_path, vocab, twins), level=level)
    (row,) = make_rows([90], vocab, seed=vocab)
    row.sampling = SamplingParams(max_tokens=1, prompt_logprobs=20)
    got = model.scores([row.span(0, 90, scored=range(89))]).prompts
    logits = torch.cat([model.logits([row.span(place, 1)]) for place in range(89)])
    want = rank(logits, row.token_ids[1:], 20)
    assert got.logprobs == pytest.approx(want.logprobs, abs=1e-5)
    assert got.ranks == [
        1 + int((each > each[token]).sum()) for each, token in zip(logits, row.token_ids[1:], strict=True)
    ]
    for pairs, each in zip(got.top, logits.numpy(), strict=True):
        assert [token for token, _ in pairs] == likeliest(each, 20).tolist()
    values = [[value for _, value in pairs] for pairs in got.top]
    assert values == [pytest.approx([value for _, value in pairs], abs=1e-5) for pairs in want.top]
