"""A model runner without a model, for tests of whatever drives an engine. Published, small, offline.

It keeps a paged cache as the real one does. What it stores for a position is a digest of everything
before it, looked for through the block table in every block that is seen, so a wrong, stale or shared one
changes the completion; `expected()` says without any cache what a completion must be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Any, Protocol

from engine.activation import NEVER, activation
from engine.config import BLOCK_SIZE, EngineConfig
from engine.engine import Engine
from engine.errors import GuideFailed
from engine.kv_groups import Window
from engine.ports import PreparedAdapter
from engine.records import (
    MemorySplit,
    SampledRow,
    SampledTokens,
    ScheduledSeq,
    SlotChange,
    StepPlan,
    TokenLogprob,
)
from engine.restriction import narrowed
from engine.sampling import MOST_BIAS
from engine.token_mask import tokens_of

EOS = 0
START = b"start"
_UNWRITTEN = b"unwritten"


class Digested(Protocol):
    """All of an adapter that the fake computes with."""

    @property
    def digest(self) -> str: ...

    @property
    def invocation(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class FakeWeights:
    """Stands for adapter weights, and for what is prepared of them."""

    digest: str
    invocation: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        return len(self.digest)


@dataclass(slots=True)
class FakeRunner:
    """A ModelRunner whose next token is a digest of history, each token with its adapter, and seed.

    It raises ValueError where a slot does not hold the adapter that a sequence was computed with before, or
    where a share goes across the position at which that begins to hold.
    A bias of -100 bans a token, others change nothing.
    poison: a sequence that computes this token fails alone. before_run: called with each plan; may raise.
    plans: (seq_id, start, count) of each sequence of each step, in order.
    """

    num_blocks: int = 64
    block_bytes: int = 1024
    num_host_blocks: int = 0
    memory: MemorySplit = field(default_factory=MemorySplit)
    attention_balance: float = inf
    windows: tuple[Window, ...] = (None,)
    model_len: int = 1024
    vocab_size: int = 97
    eos_token_ids: frozenset[int] = frozenset({EOS})
    poison: int | None = None
    before_run: Callable[[StepPlan], None] | None = None
    plans: list[list[tuple[int, int, int]]] = field(default_factory=list)
    _cache: dict[tuple[int, int], bytes] = field(default_factory=dict)
    slots: dict[int, PreparedAdapter] = field(default_factory=dict)
    _owners: dict[int, str] = field(default_factory=dict)
    _states: dict[int, list[bytes]] = field(default_factory=dict)

    def block_seconds(self) -> float:
        return 0.0

    def run(self, plan: StepPlan) -> SampledTokens:
        self.plans.append([(seq.seq_id, seq.start, seq.count) for seq in plan.seqs])
        if self.before_run is not None:
            self.before_run(plan)
        self.change_slots(plan.slots)
        for copy in plan.copies:
            for offset in range(BLOCK_SIZE):
                # A completion that reads what was never written comes out wrong.
                state = self._cache.get((copy.source, offset), _UNWRITTEN)
                self._cache[copy.target, offset] = state
        rows = (self._row(seq) for seq in plan.seqs)
        return SampledTokens(tuple(row for row in rows if row is not None))

    def prepare_adapter(self, weights: Digested) -> FakeWeights:
        return FakeWeights(weights.digest, weights.invocation)

    def change_slots(self, changes: Iterable[SlotChange]) -> None:
        for change in changes:
            self.slots.pop(change.slot, None)
            if change.adapter is not None:
                self.slots[change.slot] = change.adapter

    def _row(self, seq: ScheduledSeq) -> SampledRow | None:
        computed = seq.token_ids[seq.start : seq.start + seq.count]
        states = self._compute(seq, computed)
        if self.poison in computed:
            return SampledRow(seq.seq_id, error="logits are not finite")
        scores = tuple(
            prompt_score(
                states[at - seq.start],
                seq.token_ids[at + 1],
                seq.sampling.prompt_logprobs or 0,
                self.vocab_size,
            )
            for at in seq.scored
        )
        return self._sampled(seq, states[-1], scores) if seq.samples or scores else None

    def _sampled(self, seq: ScheduledSeq, state: bytes, scores: tuple[TokenLogprob, ...]) -> SampledRow:
        if not seq.samples:
            return SampledRow(seq.seq_id, prompt_logprobs=scores)
        if seq.guide is not None:
            try:
                seq = narrowed(seq, seq.guide)
            except GuideFailed as failure:
                return SampledRow(seq.seq_id, error=str(failure))
        biases = seq.sampling.logit_bias
        banned = (*seq.banned_ids, *(token for token, bias in biases if bias == -MOST_BIAS))
        if seq.allowed is not None:
            banned = (*banned, *(~tokens_of(seq.allowed, self.vocab_size)).nonzero()[0].tolist())
        if len(set(banned)) == self.vocab_size:
            return SampledRow(seq.seq_id, error="no token is left to choose")
        token_id = _next_token(state, seq.seed, seq.num_outputs, self.vocab_size, frozenset(banned))
        asked = seq.sampling.logprobs is not None
        logprob = TokenLogprob(token_id, -float(token_id)) if asked else None
        likely = likeliest(state, seq.num_candidates, self.vocab_size, seq.banned_ids)
        return SampledRow(seq.seq_id, token_id, logprob, candidates=likely, prompt_logprobs=scores)

    def _compute(self, seq: ScheduledSeq, token_ids: Sequence[int]) -> list[bytes]:
        adapter, holds_from = self._adapter(seq)
        state = self._seen(seq, adapter, holds_from) if seq.start else START
        states = []
        for position, token_id in enumerate(token_ids, start=seq.start):
            state = next_state(state, adapter, token_id)
            states.append(state)
            for group in range(len(self.windows)):
                self._cache[self._place(seq, position, group)] = state
        return states

    def _adapter(self, seq: ScheduledSeq) -> tuple[str | None, int]:
        """What a share is computed with, and from where on it holds. Raises ValueError, see the class."""
        if not seq.adapter_slot:
            return None, NEVER
        held = self.slots[seq.adapter_slot]
        if self._owners.setdefault(seq.seq_id, held.digest) != held.digest:
            raise ValueError(
                f"slot {seq.adapter_slot} holds {held.digest}; {self._owners[seq.seq_id]} is right"
            )
        holds_from = activation(seq.token_ids[: seq.prompt_len], held.invocation)
        if seq.start < holds_from:
            raise ValueError(
                f"tokens from {seq.start} on are the base model's; {holds_from} is the first of others"
            )
        return held.digest, holds_from

    def _seen(self, seq: ScheduledSeq, adapter: str | None, holds_from: int) -> bytes:
        """State before the first new token; a wrong one where a group lacks what that token sees."""
        states = self._states.setdefault(seq.seq_id, [])
        for at in range(len(states), seq.start):
            before = states[-1] if states else START
            states.append(next_state(before, adapter if at >= holds_from else None, seq.token_ids[at]))
        last = seq.start - 1
        for group, window in enumerate(self.windows):
            lowest = 0 if window is None else max(0, seq.start - window + 1)
            # The last position of each block, and of the text; nothing where a token sees but itself.
            looked_at = [
                *range(lowest | (BLOCK_SIZE - 1), last, BLOCK_SIZE),
                *range(max(lowest, last), last + 1),
            ]
            if any(self._cache.get(self._place(seq, at, group)) != states[at] for at in looked_at):
                return _UNWRITTEN
        return states[last]

    def _place(self, seq: ScheduledSeq, position: int, group: int) -> tuple[int, int]:
        row = position // BLOCK_SIZE
        return seq.block_table[row * len(self.windows) + group], position % BLOCK_SIZE


def expected(
    prompt: Sequence[int],
    max_tokens: int,
    *,
    seed: int,
    adapter: str | None = None,
    invocation: Sequence[int] = (),
    vocab_size: int = 97,
    min_tokens: int = 0,
    stop_ids: frozenset[int] = frozenset({EOS}),
) -> list[int]:
    """The completion a FakeRunner makes of a prompt on its own."""
    state = state_after(prompt, adapter, invocation)
    adapter = adapter if activation(prompt, invocation) < NEVER else None
    completion: list[int] = []
    while len(completion) < max_tokens:
        banned = tuple(stop_ids) if len(completion) < min_tokens else ()
        token_id = _next_token(state, seed, len(completion), vocab_size, banned)
        completion.append(token_id)
        if token_id in stop_ids:
            break
        state = next_state(state, adapter, token_id)
    return completion


def likeliest(
    state: bytes, count: int, vocab_size: int, banned: Sequence[int] = ()
) -> tuple[tuple[int, float], ...]:
    """The `count` tokens to go on with after `state`, each with its logprob, best first."""
    if not count:
        return ()
    logprobs = ((token, -(1 + state[token % 32] + token % 7) / 64) for token in range(vocab_size))
    allowed = (pair for pair in logprobs if pair[0] not in banned)
    return tuple(sorted(allowed, key=lambda pair: (-pair[1], pair[0]))[:count])


def prompt_score(state: bytes, token_id: int, count: int, vocab_size: int = 97) -> TokenLogprob:
    """What the fake says, after `state`, of a prompt's next token and of the `count` likeliest."""
    likely = likeliest(state, count, vocab_size)
    return TokenLogprob(token_id, -(1 + state[0] + token_id) / 64, likely, rank=1 + state[1])


def state_after(
    token_ids: Sequence[int], adapter: str | None = None, invocation: Sequence[int] = ()
) -> bytes:
    """What the fake stores for the last of `token_ids`, a prompt."""
    state, holds_from = START, activation(token_ids, invocation)
    for at, token_id in enumerate(token_ids):
        state = next_state(state, adapter if at >= holds_from else None, token_id)
    return state


def next_state(state: bytes, adapter: str | None, token_id: int) -> bytes:
    """What the fake stores for a token that comes after `state`, computed with an adapter or without."""
    return sha256(state + repr((adapter, token_id)).encode()).digest()


def _next_token(state: bytes, seed: int, index: int, vocab_size: int, banned: Collection[int]) -> int:
    digest = sha256(state + repr((seed, index)).encode()).digest()
    token_id = int.from_bytes(digest[:8], "big") % vocab_size
    while token_id in banned:
        token_id = (token_id + 1) % vocab_size
    return token_id


@dataclass(frozen=True, slots=True)
class FixedCosts:
    """Of a preempted sequence, known beforehand: the same choice in every run."""

    block_seconds: float = 1e-9
    token_seconds: float = 1e-3

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Changes nothing."""

    def prefers_swap(self, num_tokens: int, num_blocks: int) -> bool:
        return 2 * num_blocks * self.block_seconds < num_tokens * self.token_seconds


def fake_engine(runner: FakeRunner, costs: FixedCosts | None = None, **settings: Any) -> Engine:
    """An engine over `runner` that checks itself after every step; `settings` are EngineConfig's."""
    settings = {"model": Path("fake"), "check_integrity": True, **settings}
    config = EngineConfig(**settings)
    return Engine(config, runner=runner, costs=costs or FixedCosts())
