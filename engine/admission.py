"""What a request must satisfy before it is taken in, and the sequence it becomes. Allocates nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from engine.activation import activation
from engine.block_need import BlockNeed
from engine.config import BLOCK_SIZE, EngineConfig, blocks_for
from engine.errors import InvalidConfig, InvalidParameter, PromptTooLong, TooLargeForPool
from engine.group import Group
from engine.ports import ModelRunner, PreparedAdapter
from engine.records import Request, SamplingParams
from engine.sequence import Sequence
from engine.token_mask import mask_of

if TYPE_CHECKING:
    from engine.guide import Guide


@dataclass(frozen=True, slots=True)
class Room:
    """Sizes requests are measured against: those of the model, the pool and the settings together.

    need: reckons the blocks of a sequence.
    """

    max_model_len: int
    max_num_seqs: int
    num_blocks: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    need: BlockNeed

    def stop_ids(self, sampling: SamplingParams) -> frozenset[int]:
        """Every token that ends a completion. A grammar says itself where its sentences end."""
        own = frozenset(sampling.stop_token_ids)
        goes_on = sampling.ignore_eos and sampling.grammar is None
        return own if goes_on else own | self.eos_token_ids


def measure_room(config: EngineConfig, runner: ModelRunner) -> Room:
    """Raises InvalidConfig where the settings ask for more than the model can do."""
    need = BlockNeed(runner.windows, config.max_batched_tokens)
    longest = config.max_model_len
    if longest is None:
        longest = min(runner.model_len, need.rows_within(runner.num_blocks) * BLOCK_SIZE)
    elif longest > runner.model_len:
        raise InvalidConfig(f"max_model_len is {longest}; the model allows {runner.model_len}")
    return Room(
        longest, config.max_num_seqs, runner.num_blocks, runner.vocab_size, runner.eos_token_ids, need
    )


def check_request(request: Request, room: Room) -> int:
    """The tokens it may generate: its max_tokens, clamped to what the model length leaves.

    Raises InvalidParameter, PromptTooLong, TooLargeForPool.
    """
    request.sampling.validate()
    _check_ids("prompt", request.prompt, room.vocab_size)
    _check_vocabulary(request.sampling, room)
    prompt_len = len(request.prompt)
    if prompt_len == 0:
        raise InvalidParameter("prompt", (), "at least 1 token")
    if prompt_len > room.max_model_len - 1:
        raise PromptTooLong(got=prompt_len, allowed=room.max_model_len - 1)
    max_tokens = min(request.sampling.max_tokens, room.max_model_len - prompt_len)
    _check_choices(request.sampling, room)
    # Beams need not share a block; other choices can wait for one another.
    rows = blocks_for(prompt_len + max_tokens - 1)
    needed = room.need.most(rows) * (request.sampling.beam_width or 1)
    if needed > room.num_blocks:
        raise TooLargeForPool(needed=needed, allowed=room.num_blocks)
    return max_tokens


def check_parent(request: Request, parent_id: str, parent: Group | None) -> Group:
    """The parent that `request` may fork from. Raises InvalidParameter."""
    if parent is None:
        raise InvalidParameter("parent", parent_id, "the id of a live request")
    if (request.adapter, request.cache_salt) != (parent.request.adapter, parent.request.cache_salt):
        raise InvalidParameter("parent", parent_id, "a request with the same adapter and cache_salt")
    return parent


def make_sequence(
    seq_id: int,
    request: Request,
    room: Room,
    *,
    max_tokens: int,
    adapter: PreparedAdapter | None,
    guide: Guide | None = None,
    now: float,
) -> Sequence:
    """The first sequence of a checked request, `adapter` and `guide` its own.

    Draws a seed where the request brings none.
    """
    sampling = request.sampling
    allowed = sampling.allowed_token_ids
    if sampling.is_ranked and sampling.logprobs is None:
        request = replace(request, sampling=replace(sampling, logprobs=0))
    return Sequence(
        seq_id=seq_id,
        request=request,
        max_tokens=max_tokens,
        stop_ids=room.stop_ids(sampling),
        seed=random.getrandbits(63) if sampling.seed is None else sampling.seed,
        adapter_from=0 if adapter is None else activation(request.prompt, adapter.invocation),
        added_at=now,
        need=room.need,
        allowed=None if allowed is None else mask_of(allowed, room.vocab_size),
        guide=guide,
    )


def _check_choices(sampling: SamplingParams, room: Room) -> None:
    for param in ("n", "best_of", "beam_width"):
        value = getattr(sampling, param)
        if value is not None and value > room.max_num_seqs:
            raise InvalidParameter(param, value, f"at most max_num_seqs ({room.max_num_seqs})")
    ends = len(room.stop_ids(sampling))
    if sampling.beam_width is not None and sampling.beam_width > room.vocab_size - ends:
        raise InvalidParameter("beam_width", sampling.beam_width, f"at most {room.vocab_size - ends}")


def _check_vocabulary(sampling: SamplingParams, room: Room) -> None:
    """Tokens that parameters name are there, and some are left that do not end a completion too early."""
    _check_ids("stop_token_ids", sampling.stop_token_ids, room.vocab_size)
    _check_ids("logit_bias", (token_id for token_id, _ in sampling.logit_bias), room.vocab_size)
    _check_ids("bad_words", chain.from_iterable(sampling.bad_words), room.vocab_size)
    allowed = sampling.allowed_token_ids
    if allowed is not None:
        _check_ids("allowed_token_ids", allowed, room.vocab_size)
        if sampling.min_tokens and room.stop_ids(sampling).issuperset(allowed):
            raise InvalidParameter(
                "min_tokens", sampling.min_tokens, "0 where every allowed token ends the completion"
            )


def _check_ids(param: str, token_ids: Iterable[int], vocab_size: int) -> None:
    for token_id in token_ids:
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < vocab_size:
            raise InvalidParameter(param, token_id, f"token ids from 0 to {vocab_size - 1}")
