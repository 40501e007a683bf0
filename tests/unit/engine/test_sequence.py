"""One request's own arithmetic: progress, ends, keys, account."""

from typing import Any

import pytest

from engine.activation import NEVER
from engine.prefix import activated_key, child_key, root_key
from engine.records import Request, SamplingParams
from engine.sequence import Sequence


def _sequence(
    prompt_len: int = 4,
    max_tokens: int = 5,
    stop_ids: tuple[int, ...] = (0,),
    holds_from: int = 0,
    **sampling: Any,
) -> Sequence:
    request = Request(
        "r",
        tuple(range(1, prompt_len + 1)),
        SamplingParams(max_tokens=max_tokens, **sampling),
        "sha256:a",
        "salt",
    )
    return Sequence(0, request, max_tokens, frozenset(stop_ids), 0, holds_from, added_at=10.0)


def test_progress_is_a_number() -> None:
    seq = _sequence()
    assert (seq.pending, seq.num_outputs) == (4, 0)
    seq.num_computed, seq.table = 4, [7]
    assert seq.append(9, now=0.0) is None
    assert (seq.pending, seq.num_outputs) == (1, 1)


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "blocks"), [(273, 1, 18), (273, 16, 18), (273, 17, 19), (1, 1, 1)]
)
def test_the_last_token_needs_no_block(prompt: int, max_tokens: int, blocks: int) -> None:
    assert _sequence(prompt, max_tokens).max_blocks == blocks


def test_ends_by_stop_token_or_length() -> None:
    assert _sequence().append(0, now=0.0) == "stop"
    seq = _sequence(max_tokens=2)
    assert [seq.append(5, now=0.0), seq.append(5, now=0.0)] == [None, "length"]
    assert _sequence(max_tokens=1).append(0, now=0.0) == "stop"


def test_stop_tokens_are_banned_until_min_tokens_are_there() -> None:
    seq = _sequence(max_tokens=9, stop_ids=(0, 3), min_tokens=2)
    assert set(seq.banned_ids) == {0, 3}
    seq.append(5, now=0.0)
    assert set(seq.banned_ids) == {0, 3}
    assert seq.append(3, now=0.0) is None  # a sampler that disregards the ban does not end it either
    assert seq.banned_ids == ()
    assert seq.append(3, now=0.0) == "stop"


def test_a_token_that_would_end_a_bad_word_is_banned_when_the_others_were_generated() -> None:
    seq = _sequence(stop_ids=(0,), min_tokens=2, bad_words=((9,), (4, 5), (5, 6, 7)))
    assert seq.banned_ids == (9, 0)  # the prompt ends with 4: what was not generated does not count
    seq.append(5, now=0.0)
    seq.append(6, now=0.0)
    assert seq.banned_ids == (9, 7)
    assert seq.branch(1, index=1, seed=0).banned_ids == (9, 7)


def test_block_keys_chain_over_prompt_and_outputs() -> None:
    seq = _sequence(prompt_len=30, max_tokens=9)
    first = child_key(root_key("sha256:a", "salt"), seq.token_ids[:16])
    assert seq.block_key(0) == first
    seq.append(5, now=0.0)
    seq.append(6, now=0.0)
    assert seq.block_key(1) == child_key(first, [*range(17, 31), 5, 6])
    assert seq.block_key(0) == first


def test_order_is_priority_then_arrival() -> None:
    urgent = Request("u", (1,), SamplingParams(max_tokens=1), priority=-1)
    assert Sequence(9, urgent, 1, frozenset(), 0, 0, 0.0).order < _sequence().order


def test_the_account_covers_the_phases_it_reached() -> None:
    seq = _sequence()
    stats = seq.stats(now=12.0)
    assert (stats.queue_s, stats.prefill_s, stats.decode_s) == (2.0, 0.0, 0.0)
    seq.started_at = 11.0
    seq.append(5, now=11.5)
    seq.append(5, now=12.0)
    stats = seq.stats(now=12.0)
    assert (stats.queue_s, stats.prefill_s, stats.decode_s) == (1.0, 0.5, 0.5)
    assert (stats.prompt_tokens, stats.completion_tokens) == (4, 2)


def test_a_step_computes_no_tokens_of_two_kinds() -> None:
    seq = _sequence(prompt_len=30, holds_from=20)
    assert (seq.stretch, seq.adapter_next, seq.adapter) == (20, None, "sha256:a")
    seq.num_computed = 8
    assert (seq.stretch, seq.adapter_next) == (12, None)
    seq.num_computed = 20
    assert (seq.stretch, seq.adapter_next) == (10, "sha256:a")
    never = _sequence(prompt_len=30, holds_from=NEVER)
    assert (never.stretch, never.adapter_next, never.adapter) == (30, None, None)


def test_blocks_before_the_position_have_the_base_models_keys_and_those_from_it_on_the_adapters() -> None:
    seq = _sequence(prompt_len=48, holds_from=20)
    first = child_key(root_key(None, "salt"), seq.token_ids[:16])
    parent = activated_key(first, "sha256:a", 4)
    assert (seq.block_key(0), seq.parent_key(1)) == (first, parent)
    assert seq.block_key(1) == child_key(parent, seq.token_ids[16:32])
    assert seq.block_key(2) == child_key(seq.block_key(1), seq.token_ids[32:48])
    seq.num_computed = 24
    assert seq.content(1).parent == parent
    assert _sequence(holds_from=NEVER).parent_key(0) == root_key(None, "salt")
