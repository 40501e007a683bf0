"""Masks are joined before tokens are drawn: late ones put their own row off, failed ones end it."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from engine.errors import GuideFailed
from engine.fake_runner import FakeRunner
from engine.grammar import Grammar
from engine.guide import Guide, Tables
from engine.mask_threads import MAX_THREADS, MaskThreads
from engine.records import SampledRow, SampledTokens, ScheduledSeq, StepPlan
from engine.restriction import narrowed, restricted
from engine.sampling import SamplingParams
from engine.token_mask import mask_of, tokens_of
from tests.unit.engine.conftest import byte_level_encoder, write_tokenizer
from tests.unit.engine.grammars import answers, asked, guided_engine, token_ids

VOCAB, END = 70, 3


class Matcher:
    """Allows `tokens`; its masks take until `go` is set."""

    def __init__(self, tokens: set[int], error: str = "") -> None:
        self.tokens, self.error = tokens, error
        self.go = Event()
        self.go.set()

    def compute_bitmask(self) -> bytes:
        assert self.go.wait(10)
        return mask_of(self.tokens, VOCAB)

    def is_error(self) -> bool:
        return bool(self.error)

    def get_error(self) -> str:
        return self.error


def guide(tokens: set[int], *, begun: bool = True, error: str = "") -> Guide:
    made = Guide(Matcher(tokens, error), frozenset({END}), Tables())  # type: ignore[arg-type]
    if begun:
        made.begin()
        made.fill()
    return made


def row(seq_id: int, follows: Guide | None = None, **more: Any) -> ScheduledSeq:
    params = SamplingParams(max_tokens=9)
    return ScheduledSeq(seq_id, [1], 1, 0, 1, [0], 0, True, params, 0, guide=follows, **more)


def kept(seq: ScheduledSeq) -> list[int]:
    assert seq.allowed is not None
    left = set(tokens_of(seq.allowed, min(VOCAB, 8 * len(seq.allowed))).nonzero()[0].tolist()) - set(
        seq.banned_ids
    )
    return sorted(left)


def test_rows_without_a_guide_are_left_alone() -> None:
    plain = row(0)
    rows = restricted([plain, row(1, guide({5, 6}))])
    assert rows.seqs[0] is plain
    assert kept(rows.seqs[1]) == [5, 6]
    assert not rows.undrawn


def test_a_mask_is_narrowed_by_allowed_tokens_and_bans() -> None:
    follows = guide({5, 6, 7, 69, END})
    assert kept(narrowed(row(0, follows, allowed=mask_of([6, 7, 69], VOCAB)), follows)) == [6, 7, 69]
    assert kept(narrowed(row(0, follows, banned_ids=(END, 5)), follows)) == [6, 7, 69]


def test_the_mask_of_a_guide_may_be_longer_than_the_vocabulary() -> None:
    follows = guide({5, 6, END})
    allowed = mask_of([6, 7], 64)
    assert len(follows.mask()) > len(allowed)
    assert kept(narrowed(row(0, follows, allowed=allowed), follows)) == [6]


def test_the_end_is_not_banned_where_nothing_else_may_follow() -> None:
    follows = guide({END})
    assert kept(narrowed(row(0, follows, banned_ids=(END, 5)), follows)) == [END]
    assert kept(narrowed(row(0, follows, banned_ids=(5,), allowed=mask_of([5], VOCAB)), follows)) == []


def test_a_row_whose_mask_is_late_is_put_off_and_nobody_waits() -> None:
    late = guide({5}, begun=False)
    late.begin()
    rows = restricted([row(0), row(1, late), row(2, guide({6}))])
    drawn = [SampledRow(seq.seq_id, 9) for seq in rows.seqs]
    assert rows.settle(drawn) == (SampledRow(0, 9), SampledRow(1, late=True), SampledRow(2, 9))


def test_where_all_masks_are_late_the_first_is_waited_for() -> None:
    slow, quick = guide({5}, begun=False), guide({6}, begun=False)
    slow.begin()
    quick.begin()
    thread = Thread(target=quick.fill)
    thread.start()
    rows = restricted([row(0, slow), row(1, quick)])
    thread.join()
    assert list(rows.undrawn) == [0]
    assert kept(rows.seqs[1]) == [6]


def test_a_failed_mask_ends_its_row() -> None:
    failed = guide({5}, error="no more <b>\n room <non-verbose/> state")
    rows = restricted([row(0), row(1, failed)])
    error = rows.undrawn[1].error
    assert error is not None
    assert error.endswith("no more <b> room")
    with pytest.raises(GuideFailed):
        failed.mask()


def test_a_slow_mask_does_not_keep_others_from_being_made() -> None:
    slow = guide({5}, begun=False)
    matcher = slow._matcher
    assert isinstance(matcher, Matcher)
    matcher.go.clear()
    threads, others = MaskThreads(), [guide({6}, begun=False) for _ in range(4 * MAX_THREADS)]
    threads.begin([slow, *others])
    assert [other.mask() for other in others] == [mask_of({6}, VOCAB)] * len(others)
    assert not slow.pending.done()
    threads.begin([slow])  # on its way: not begun again
    matcher.go.set()
    assert slow.mask() == mask_of({5}, VOCAB)


class LateRunner(FakeRunner):
    """Puts each guided row off every other time."""

    def run(self, plan: StepPlan) -> SampledTokens:
        sampled = FakeRunner.run(self, plan)
        if len(self.plans) % 2:
            return sampled
        guided = {seq.seq_id for seq in plan.seqs if seq.guide is not None}
        rows = (SampledRow(r.seq_id, late=True) if r.seq_id in guided else r for r in sampled.rows)
        return SampledTokens(tuple(rows))


def test_a_row_that_was_put_off_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(tmp_path, byte_level_encoder())
    wanted = [asked("a", Grammar("regex", "[a-z]{30,60}"), n=2), asked("b", None, 40, ignore_eos=True)]
    prompt = tuple(range(40, 90))  # in chunks: a share that samples computes several tokens
    wanted.append(asked("c", Grammar("regex", "[a-z]{30,60}"), prompt=prompt))
    settings: dict[str, Any] = {"max_batched_tokens": 24, "num_blocks": 24}
    plain = answers(guided_engine(tmp_path, ("<|im_end|>",), **settings), *wanted)
    monkeypatch.setattr("tests.unit.engine.grammars.FakeRunner", LateRunner)
    late = answers(guided_engine(tmp_path, ("<|im_end|>",), **settings), *wanted)
    assert {key: token_ids(events) for key, events in plain.items()} == {
        key: token_ids(events) for key, events in late.items()
    }
