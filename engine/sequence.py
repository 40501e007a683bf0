"""One choice of a request on its way: its tokens, how far they are computed, its block table, when it ends.

Progress is a number, `num_computed`; prompt, decode and resumption after preemption differ in nothing
else. Knows no pool, no queue and no other sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from engine.activation import NEVER
from engine.bad_words import BadWords
from engine.block_need import BlockNeed
from engine.config import BLOCK_SIZE, blocks_for
from engine.prefix import activated_key, child_key, root_key
from engine.prefix_index import Content
from engine.records import FinishReason, Request, RequestStats, SamplingParams, TokenLogprob
from engine.sampling import MAX_BAD_WORD_TOKENS

if TYPE_CHECKING:
    from engine.guide import Guide

SeqState = Literal["waiting", "running", "finished"]

ALL_SEEN = BlockNeed()
"""That of a model without windows."""

_NOWHERE = range(0)


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable state of one choice; the scheduler moves it, the engine appends to it.

    arrival: seq_id of its request's first sequence, all of which stand at one place in the queue.
    max_tokens: the request's own, clamped to the model length. stop_ids: every token that ends it.
    seed: the request's own or one drawn for it. adapter_from: position from which the request's adapter
        holds; what is before it is the base model's. added_at and later times: seconds, monotonic.
    need: reckons its blocks. table: block ids, row by row, one of each KV group; while it runs it owns (one
        reference each) all but those that have left their group's window, which are others' now.
    most_blocks: owned at once, of its whole life.
    saved: host blocks, owned by it while it waits, that hold its first num_saved tokens.
    index: which choice. forks_due: sequences yet to be forked off it, places and blocks for which are kept.
    party: the beams of its search, itself among them, which run, wait and are preempted together.
    num_candidates: of a beam, the tokens to choose from in each step. total: summed logprob of its outputs.
    logprobs: of its outputs, where they are kept until it ends.
    allowed: tokens that may be sampled, as in engine.token_mask; None for all.
    prompt_logprobs: where they are asked for, of the prompt's tokens from the second on, as far as they are
        scored: by the first sequence of its request, before others branch off.
    guide: its own, where it follows a grammar.
    """

    seq_id: int
    request: Request
    max_tokens: int
    stop_ids: frozenset[int]
    seed: int
    adapter_from: int
    added_at: float
    need: BlockNeed = ALL_SEEN
    state: SeqState = "waiting"
    arrival: int = field(init=False)
    token_ids: list[int] = field(init=False)
    prompt_len: int = field(init=False)
    num_computed: int = 0
    table: list[int] = field(default_factory=list)
    preemptions: int = 0
    cached_tokens: int = 0
    most_blocks: int = 0
    started_at: float | None = None
    first_token_at: float | None = None
    saved: list[int] = field(default_factory=list)
    num_saved: int = 0
    index: int = 0
    forks_due: int = 0
    party: list[Sequence] | None = None
    num_candidates: int = 0
    total: float = 0.0
    logprobs: list[TokenLogprob] = field(default_factory=list)
    allowed: bytes | None = None
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    guide: Guide | None = None
    _bad_words: BadWords = field(init=False)
    _keys: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.arrival = self.seq_id
        self.token_ids = list(self.request.prompt)
        self.prompt_len = len(self.token_ids)
        self._bad_words = BadWords(self.sampling.bad_words)
        adapter = None if self.adapter_from else self.request.adapter
        self._keys = [root_key(adapter, self.request.cache_salt)]

    @property
    def sampling(self) -> SamplingParams:
        return self.request.sampling

    @property
    def num_outputs(self) -> int:
        return len(self.token_ids) - self.prompt_len

    @property
    def pending(self) -> int:
        """Tokens whose keys and values are to be computed: none only of a beam that waits for others."""
        return len(self.token_ids) - self.num_computed

    @property
    def stretch(self) -> int:
        """Pending tokens that one step may compute: none beyond the position where its adapter takes over."""
        before = self.adapter_from - self.num_computed
        return min(self.pending, before) if before > 0 else self.pending

    @property
    def adapter(self) -> str | None:
        """Digest of the adapter that some of its tokens are computed with."""
        return None if self.adapter_from == NEVER else self.request.adapter

    @property
    def adapter_next(self) -> str | None:
        """Digest of the adapter that its next tokens are computed with."""
        return self.request.adapter if self.num_computed >= self.adapter_from else None

    @property
    def begins_with(self) -> str | None:
        """Adapter that has to hold a slot before the sequence may run. Does not change while it waits."""
        # Preempted behind its position, it would only be parked there again.
        return self.adapter if self.adapter_from == 0 or self.preemptions else None

    @property
    def rows(self) -> int:
        """Rows of its table."""
        return len(self.table) // self.need.groups

    @property
    def max_rows(self) -> int:
        """Rows its table may come to have; the last token's keys and values are never computed."""
        return blocks_for(self.prompt_len + self.max_tokens - 1)

    @property
    def max_blocks(self) -> int:
        """Blocks it may yet hold at once."""
        return self.need.most(self.max_rows, self.num_computed)

    @property
    def held(self) -> list[int]:
        """Blocks that it owns."""
        return self.held_of(self.rows)

    def held_of(self, rows: int) -> list[int]:
        """Blocks of the first rows of its table that it owns."""
        return [self.table[place] for place in self.need.places(rows, self.num_computed)]

    @property
    def open_places(self) -> range:
        """Where its table names the blocks it has filled in part; none where its next token begins a row."""
        if self.num_computed % BLOCK_SIZE == 0:
            return _NOWHERE
        first = self.num_computed // BLOCK_SIZE * self.need.groups
        return range(first, first + self.need.groups)

    @property
    def order(self) -> tuple[int, int, int]:
        """Who goes first: lower priority value, then earlier arrival."""
        return self.request.priority, self.arrival, self.seq_id

    @property
    def companions(self) -> list[Sequence]:
        """Those that run, wait and are preempted together: itself, or all beams of its search."""
        return [self] if self.party is None else self.party

    @property
    def unscored(self) -> range:
        """Positions of the prompt that have yet to tell the log probability of the token behind them."""
        if self.sampling.prompt_logprobs is None:
            return _NOWHERE
        return range(len(self.prompt_logprobs), self.prompt_len - 1)

    def scored_by(self, count: int) -> range:
        """Of its next `count` tokens, the positions that do so."""
        unscored = self.unscored
        return range(max(self.num_computed, unscored.start), min(self.num_computed + count, unscored.stop))

    @property
    def most_cached(self) -> int:
        """Tokens that may be found already computed: none that is to be sampled from or scored."""
        return self.unscored.start if self.unscored else len(self.token_ids) - 1

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """Tokens that may not be sampled next: they would end it before min_tokens, or end a bad word."""
        banned: list[int] = []
        if self.sampling.bad_words:
            first = max(self.prompt_len, len(self.token_ids) - MAX_BAD_WORD_TOKENS)
            banned = self._bad_words.ended_by(self.token_ids[first:])
        if self.num_outputs < self.sampling.min_tokens:
            banned += self.stop_ids
        return tuple(banned)

    @property
    def end_token(self) -> int | None:
        """Its last token, where that is one that ends it and no part of what it says."""
        last = self.token_ids[-1]
        return last if last in self.stop_ids else None

    def block_key(self, index: int) -> bytes:
        """Key of its full block `index`, -1 for what precedes the first; computed once."""
        while len(self._keys) <= index + 1:
            row = len(self._keys) - 1
            tokens = self.token_ids[row * BLOCK_SIZE : (row + 1) * BLOCK_SIZE]
            self._keys.append(child_key(self.parent_key(row), tokens))
        return self._keys[index + 1]

    def parent_key(self, index: int) -> bytes:
        """Key of all that its block `index` depends on beside its own tokens."""
        key = self.block_key(index - 1)
        row, offset = divmod(self.adapter_from, BLOCK_SIZE)
        if row != index or self.adapter_from == 0 or self.request.adapter is None:
            return key
        return activated_key(key, self.request.adapter, offset)

    def content(self, index: int) -> Content:
        """What its block `index` holds: BLOCK_SIZE computed tokens or, at their end, fewer."""
        start = index * BLOCK_SIZE
        tokens = tuple(self.token_ids[start : min(start + BLOCK_SIZE, self.num_computed)])
        parent = self.parent_key(index)
        key = self.block_key(index) if len(tokens) == BLOCK_SIZE else child_key(parent, tokens)
        return Content(key, parent, tokens)

    def branch(self, seq_id: int, *, index: int, seed: int) -> Sequence:
        """Another sequence of the same request with the same tokens, of which it has computed none yet."""
        other = replace(
            self,
            seq_id=seq_id,
            index=index,
            seed=seed,
            state="waiting",
            num_computed=0,
            table=[],
            saved=[],
            num_saved=0,
            forks_due=0,
            logprobs=list(self.logprobs),
            guide=None if self.guide is None else self.guide.copy(),
        )
        other.arrival = self.arrival
        other.token_ids = list(self.token_ids)
        other._keys = list(self._keys)
        return other

    def append(self, token_id: int, now: float) -> FinishReason | None:
        """Add a sampled token; says whether and why the sequence ends with it. Raises GuideFailed."""
        self.token_ids.append(token_id)
        if self.first_token_at is None:
            self.first_token_at = now
        if self.guide is not None and self.guide.advance(token_id):
            return "stop"
        if token_id in self.stop_ids and self.num_outputs > self.sampling.min_tokens:
            return "stop"
        return "length" if self.num_outputs >= self.max_tokens else None

    def stats(self, now: float) -> RequestStats:
        """Its account, at the end; a phase it did not reach took no time."""
        started = now if self.started_at is None else self.started_at
        first = now if self.first_token_at is None else self.first_token_at
        return RequestStats(
            prompt_tokens=self.prompt_len,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.num_outputs,
            preemptions=self.preemptions,
            queue_s=started - self.added_at,
            prefill_s=first - started,
            decode_s=now - first,
            blocks=self.most_blocks,
        )
