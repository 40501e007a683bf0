"""Plain records that cross the engine's edges: in as requests, out as token events, down as step plans.

Knows no tensors, no threads and no policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from engine.sampling import SamplingParams

if TYPE_CHECKING:
    from engine.guide import Guide
    from engine.ports import PreparedAdapter

__all__ = [
    "AdapterInfo",
    "BlockCopy",
    "Candidates",
    "EngineStats",
    "FinishReason",
    "GroupStats",
    "MemorySplit",
    "Request",
    "RequestStats",
    "SampledRow",
    "SampledTokens",
    "SamplingParams",
    "ScheduledSeq",
    "SlotChange",
    "Spread",
    "StepPlan",
    "TokenEvent",
    "TokenLogprob",
]

FinishReason = Literal["stop", "length", "abort", "error"]

Candidates = tuple[tuple[int, float], ...]
"""Tokens to choose from, each with its logprob, best first."""


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to complete, once or, as `sampling` says, in several choices.

    id: unique among live requests. prompt: token ids, at least one.
    adapter: digest of an added adapter, None for the base model. One with invocation tokens holds from the
        start of their last occurrence in the prompt on; the base model answers a prompt without them.
    cache_salt: requests share prefix blocks only with equal salt.
    priority: a lower value is served earlier; equal values in order of arrival.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    adapter: str | None = None
    cache_salt: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of a token, and the likeliest (token id, logprob) in its place, best first.

    rank: 1 and how many tokens were likelier; None where nobody counted.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class RequestStats:
    """Account of one finished request; times in seconds, `decode_s` runs from the first token on.

    cached_tokens: prompt tokens whose keys and values were found in the prefix cache.
    blocks: KV blocks it held at most.
    hidden_tokens: with the best of several choices, tokens of those that are not handed out.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    preemptions: int
    queue_s: float
    prefill_s: float
    decode_s: float
    blocks: int = 0
    hidden_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """What one step brought one choice of a request. Each choice has exactly one last event.

    index: which choice, 0 .. n - 1.
    token_ids: new tokens, with the stop token where one ended it; empty when aborted or failed.
    logprobs: one for each new token, None where none were asked for.
    finish, stats: set on the last event only. stop_token: set when a token ended the request.
    error: reason, with finish "error" only.
    score: by which a choice of best_of or of a beam search was ranked; it comes whole, in one event.
    prompt_logprobs: with the first event of choice 0, where asked for: of each prompt token but the first.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish: FinishReason | None = None
    stop_token: int | None = None
    stats: RequestStats | None = None
    error: str | None = None
    index: int = 0
    score: float | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """One added adapter: its slot while it holds one, its bytes, and live requests that refer to it."""

    digest: str
    slot: int | None
    bytes: int
    requests: int


@dataclass(frozen=True, slots=True)
class Spread:
    """How often a size occurred: counts[i] of sizes up to 2 ** i and above the bound before."""

    counts: tuple[int, ...] = ()
    total: int = 0


@dataclass(frozen=True, slots=True)
class MemorySplit:
    """Bytes set aside for each part of an engine, see engine.memory."""

    weights: int = 0
    adapters: int = 0
    step: int = 0
    host: int = 0
    headroom: int = 0
    kv: int = 0

    def with_kv(self, kv: int) -> MemorySplit:
        return replace(self, kv=kv)

    @property
    def total(self) -> int:
        """All parts."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """Bytes by the name of the part."""
        return asdict(self)

    def __str__(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in self.parts().items() if count)


@dataclass(frozen=True, slots=True)
class GroupStats:
    """A KV group: its layers' window, None without one, and the blocks that sequences use of it."""

    window: int | None
    blocks_used: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges of this moment and counters since the start.

    blocks_free: blocks no sequence uses, of which blocks_cached hold a prefix that may be found again.
    memory: bytes set aside, by part. groups: KV groups of layers and what they use of the one pool.
    kv_bytes_total, kv_bytes_used: of the KV pool, and of the blocks that sequences use.
    live_tokens: tokens of running sequences whose keys and values are cached. reserved_tokens: places for
        more in the rows of blocks that they hold.
    prefix_queries, prefix_hits: prompt tokens looked up, and those found.
    admissions: sequences that began to run, again after a preemption. evictions: cached blocks given up.
    preemptions: of them, swaps saved their blocks to host memory, where host_blocks_free are left; the
        others compute again.
    copies_on_write: blocks copied because a fork wrote them. prefix_copies: blocks copied because they
        match a prompt in part. window_frees: blocks that left the window of a running sequence.
    last_batch_seqs, last_batch_tokens: of the last step; seqs_by_step, tokens_by_step: of all steps.
    failed_steps: steps the runner could not finish; consecutive_failures of them in a row until now.
    adapters: added; adapters_bound hold a slot. slot_changes: times that a slot was given to an adapter.
    parked: of the running sequences, those whose adapter waits for its turn in a slot.
    longest_slot_wait_steps, longest_slot_wait_s: that a wanted adapter has waited for one.
    """

    running: int = 0
    waiting: int = 0
    blocks_total: int = 0
    blocks_free: int = 0
    blocks_cached: int = 0
    groups: tuple[GroupStats, ...] = ()
    memory: MemorySplit = field(default_factory=MemorySplit)
    prefix_queries: int = 0
    prefix_hits: int = 0
    kv_bytes_total: int = 0
    kv_bytes_used: int = 0
    live_tokens: int = 0
    reserved_tokens: int = 0
    admissions: int = 0
    evictions: int = 0
    copies_on_write: int = 0
    prefix_copies: int = 0
    window_frees: int = 0
    swaps: int = 0
    host_blocks_total: int = 0
    host_blocks_free: int = 0
    preemptions: int = 0
    steps: int = 0
    failed_steps: int = 0
    consecutive_failures: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    last_batch_tokens: int = 0
    last_batch_seqs: int = 0
    seqs_by_step: Spread = field(default_factory=Spread)
    tokens_by_step: Spread = field(default_factory=Spread)
    adapters: int = 0
    adapters_bound: int = 0
    slot_changes: int = 0
    parked: int = 0
    longest_slot_wait_steps: int = 0
    longest_slot_wait_s: float = 0.0


_NOWHERE = range(0)


@dataclass(frozen=True, slots=True)
class ScheduledSeq:
    """One sequence's share of a step.

    The runner computes keys and values of `token_ids[start : start + count]`, writes those of position p
    in the layers of KV group g at block `block_table[p // BLOCK_SIZE * groups + g]`, offset
    `p % BLOCK_SIZE`, and attends over positions 0 .. start + count - 1, as far as each layer sees. With
    `samples` set it also chooses the next token, from the last position; each position in `scored`, none of
    which is that one, tells the log probability of the prompt's token behind it.

    seq_id: one number for the whole life of a sequence, also across preemption; never used again.
    token_ids: prompt, then all generated tokens; a live view, read-only, valid during run() only.
    block_table: live view, the same rules; rows of one block of each KV group, for at least start + count
        positions. What it names for positions that a group's layers see no more is others'.
    seed: together with num_outputs it fixes the random draw, so a resumed sequence draws the same.
    banned_ids: tokens that must not be sampled now: end tokens before min_tokens, ends of bad words.
    allowed: the tokens that may be sampled at all, as in engine.token_mask; None for all.
    guide: what its grammar allows after its last token; begun, and not always ready. None without one.
    num_candidates: above 0, that many likeliest tokens are wanted instead of a sampled one.
    """

    seq_id: int
    token_ids: Sequence[int]
    prompt_len: int
    start: int
    count: int
    block_table: Sequence[int]
    adapter_slot: int
    samples: bool
    sampling: SamplingParams
    seed: int
    banned_ids: tuple[int, ...] = ()
    allowed: bytes | None = None
    guide: Guide | None = None
    num_candidates: int = 0
    scored: range = _NOWHERE

    @property
    def num_outputs(self) -> int:
        """Tokens generated so far: the index of the one to be sampled."""
        return len(self.token_ids) - self.prompt_len


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy all keys and values of one block to another, in every layer of its group."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class SlotChange:
    """Let a slot hold another adapter, or none."""

    slot: int
    adapter: PreparedAdapter | None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: which tokens of which sequences to compute.

    copies: to be made before anything is computed, one after another: a later one may read what an
        earlier one wrote, or overwrite what it read. slots: to be changed before that, each at most once.
    """

    seqs: tuple[ScheduledSeq, ...]
    copies: tuple[BlockCopy, ...] = ()
    slots: tuple[SlotChange, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(seq.count for seq in self.seqs)


@dataclass(frozen=True, slots=True)
class SampledRow:
    """What a step made of one sequence: a token, or (token_id -1) the reason why it alone failed.

    candidates: where they are wanted, the likeliest tokens that are not banned. prompt_logprobs: of the
    tokens behind its scored positions; token_id is -1 too where it has only these.
    late: no token and no candidates, as its guide was not ready; its last token is to be computed again.
    """

    seq_id: int
    token_id: int = -1
    logprob: TokenLogprob | None = None
    error: str | None = None
    candidates: Candidates = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    late: bool = False


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One row for each sequence that samples or scores; others appear only with an error."""

    rows: tuple[SampledRow, ...]
