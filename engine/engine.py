"""The engine as a library: take requests in, advance all of them by one step, hand out token events.

Single-threaded and synchronous; `engine.async_engine` gives it a thread. Knows no text: prompts come
and completions go as token ids.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence as Ordered
from itertools import count
from typing import TYPE_CHECKING

from engine.adapters import AddedAdapters
from engine.admission import check_parent, check_request, make_sequence, measure_room
from engine.assembly import make_scheduler, measured_costs, open_runner
from engine.config import EngineConfig
from engine.costs import RestoreCosts
from engine.errors import IntegrityError, NoAdapterSlots, QueueFull
from engine.generate import generate
from engine.guidance import Guidance, PreparedGrammar
from engine.limits import SchedulerCounters
from engine.live import LiveRequests
from engine.mask_threads import MaskThreads
from engine.ports import ModelRunner, PreparedAdapter
from engine.progress import Progress
from engine.records import (
    AdapterInfo,
    EngineStats,
    Request,
    SamplingParams,
    StepPlan,
    TokenEvent,
)
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.stats import StepCounters, snapshot

if TYPE_CHECKING:
    from engine.adapter_weights import AdapterWeights
    from engine.grammar import Grammar

logger = logging.getLogger(__name__)


class Engine:
    """Serves many requests at once over one model.

    runner: computes the steps; by default the real one, built from `config`.
    costs: what bringing a preempted request back costs; by default as measured.
    """

    def __init__(
        self, config: EngineConfig, *, runner: ModelRunner | None = None, costs: RestoreCosts | None = None
    ) -> None:
        self._config = config
        self._runner = open_runner(config) if runner is None else runner
        self._costs = measured_costs(self._runner) if costs is None else costs
        self._room = measure_room(config, self._runner)
        self._adapters = AddedAdapters()
        self._guidance = Guidance(config.model, self._runner.vocab_size, self._runner.eos_token_ids)
        self._masks = MaskThreads()
        self._steps = StepCounters()
        self._scheduling = SchedulerCounters()
        self._scheduler = self._make_scheduler()
        self._live = LiveRequests()
        self._seq_ids = count()
        self._progress = self._make_progress()

    @property
    def max_model_len(self) -> int:
        """Most tokens of prompt and completion together."""
        return self._room.max_model_len

    @property
    def has_work(self) -> bool:
        """Whether step() has something to do or to hand out."""
        return len(self._live) > 0 or self._live.has_events

    @property
    def has_room(self) -> bool:
        """Whether add() would not raise QueueFull."""
        return len(self._scheduler.waiting) < self._config.max_waiting

    def add(self, request: Request, grammar: PreparedGrammar | None = None) -> None:
        """Take a request in.

        grammar: what its own was prepared to; without it that is done here.
        Raises InvalidParameter, PromptTooLong, TooLargeForPool, DuplicateRequest, QueueFull,
        UnknownAdapter, and what prepare_grammar raises; then nothing has changed.
        """
        self._scheduler.add(self._take_in(request, grammar))

    def fork(self, parent_id: str, request: Request) -> None:
        """Take in a request that goes on from tokens a running one has computed: n > 1, beams.

        Blocks of common tokens are shared, and copied when one of them writes. It runs at once where there
        is room, else it waits. Raises what add() raises, InvalidParameter for a parent that is not live or
        differs in adapter or salt.
        """
        parent = check_parent(request, parent_id, self._live.get(parent_id))
        self._scheduler.fork(self._take_in(request), parent.live[0])

    def _take_in(self, request: Request, prepared: PreparedGrammar | None = None) -> Sequence:
        max_tokens = check_request(request, self._room)
        self._live.check_new(request.id)
        if not self.has_room:
            raise QueueFull(len(self._scheduler.waiting), self._config.max_waiting)
        grammar = request.sampling.grammar
        if grammar is not None and prepared is None:
            prepared = self._guidance.prepare(grammar)
        seq = make_sequence(
            next(self._seq_ids),
            request,
            self._room,
            max_tokens=max_tokens,
            adapter=None if request.adapter is None else self._adapters.pin(request.adapter),
            guide=None if prepared is None else prepared.guide(),
            now=time.monotonic(),
        )
        self._live.open(request, seq)
        return seq

    def abort(self, request_id: str, index: int | None = None) -> bool:
        """End a live request in any phase, its blocks free at once; False if there is none such.

        index: of its choices end this one alone, which must have made a token; one of best_of or of a beam
        search is told whole and ends with the others, so it cannot be ended alone.
        The last event of each choice that ends, finish "abort", comes with the next step().
        """
        if (group := self._live.get(request_id)) is None:
            return False
        if index is None:
            self._progress.end_all(group, "abort")
        elif (choice := group.choice(index)) is not None:
            self._progress.end(choice, "abort")
        else:
            return False
        return True

    def abort_all(self) -> None:
        """End every live request."""
        for group in list(self._live):
            self._progress.end_all(group, "abort")

    def prepare_adapter(self, weights: AdapterWeights) -> PreparedAdapter:
        """An adapter in the form it is computed with, all of it checked. Any thread, beside a running step.

        Raises AdapterTooLarge, AdapterMismatch, MemoryError.
        """
        return self._runner.prepare_adapter(weights)

    def prepare_grammar(self, grammar: Grammar) -> PreparedGrammar:
        """A grammar compiled for the model's tokens, or as it is kept. Any thread, beside a running step.

        Takes a few milliseconds, up to about a second for the largest that are accepted. Raises BadGrammar,
        GrammarTooComplex, and UnsupportedModel where the model's folder has no tokenizer that will do.
        """
        return self._guidance.prepare(grammar)

    def kept_grammar(self, grammar: Grammar) -> PreparedGrammar | None:
        """What prepare_grammar would return at once. Any thread."""
        return self._guidance.kept(grammar)

    def add_adapter(self, prepared: PreparedAdapter) -> None:
        """Requests may name it from now on; the same digest again changes nothing. Raises NoAdapterSlots.

        Any number may be added: those of `adapter_slots` can be in one step, see engine.slot_turns.
        """
        if not self._config.adapter_slots:
            raise NoAdapterSlots(prepared.digest)
        self._adapters.add(prepared)

    def remove_adapter(self, digest: str) -> int:
        """Let go of an adapter, also in its slot; returns its bytes. Raises UnknownAdapter, AdapterInUse."""
        freed = self._adapters.remove(digest)
        turns = self._scheduler.turns
        turns.vacate(digest)
        self._runner.change_slots(turns.take_changes())
        return freed

    def adapters(self) -> dict[str, AdapterInfo]:
        """Added adapters by digest."""
        return self._adapters.snapshot(self._scheduler.turns.bound)

    def stats(self) -> EngineStats:
        return snapshot(self._steps, self._scheduler, self._runner, len(self._adapters))

    def generate(
        self, prompts: Ordered[Ordered[int]], sampling: SamplingParams, adapter: str | None = None
    ) -> list[list[int]]:
        """Complete many prompts; returns the tokens of n choices of each, in the order given.

        Raises what add() raises, EngineBusy when requests are live, GenerationFailed when one fails.
        """
        return generate(self, prompts, sampling, adapter)

    def step(self) -> list[TokenEvent]:
        """Advance every running request and return all events since the last step.

        A runner's exception ends the requests of this step with finish "error" and is not raised.
        """
        plan = self._scheduler.schedule()
        if plan.seqs:
            self._run(plan)
        if self._config.check_integrity:
            self.check_integrity()
        return self._live.take_events()

    def recover(self, reason: str) -> list[TokenEvent]:
        """After step() itself has raised: fail what was running, keep what waits, on an empty pool."""
        self._steps.failed()
        self._scheduler = self._make_scheduler()
        self._scheduler.turns.distrust()
        self._progress = self._make_progress()
        for seq in [seq for group in self._live for seq in group.live]:
            if seq.state == "waiting":
                seq.saved, seq.num_saved = [], 0
                self._scheduler.add(seq)
            else:
                self._progress.close(seq, "error", error=reason)
        return self._live.take_events()

    def check_integrity(self) -> None:
        """Raise IntegrityError unless every invariant of blocks, queues and slots holds."""
        self._scheduler.check_integrity()
        self._adapters.check_integrity(group.request.adapter for group in self._live)
        live = {seq for group in self._live for seq in group.live}
        if (scheduled := {*self._scheduler.running, *self._scheduler.waiting}) != live:
            raise IntegrityError(f"{len(live)} sequences are live; {len(scheduled)} run or wait")

    def _run(self, plan: StepPlan) -> None:
        now = time.monotonic()
        running = {seq.seq_id: seq for seq in self._scheduler.running}
        for seq in running.values():
            seq.started_at = now if seq.started_at is None else seq.started_at
        self._masks.begin(share.guide for share in plan.seqs if share.samples and share.guide is not None)
        try:
            sampled = self._runner.run(plan)
        except Exception as error:  # whatever model code raises ends this batch, never the loop
            logger.exception("step failed", extra={"action": "step_failed", "requests": len(plan.seqs)})
            self._steps.failed()
            for seq in self._scheduler.distrust(plan):
                if seq.state == "running":  # not ended yet with another beam
                    self._progress.end(seq, "error", error=f"{type(error).__name__}: {error}")
            return
        self._costs.observe(plan, time.monotonic() - now)
        self._steps.succeeded(plan)
        self._progress.apply(plan, running, sampled)

    def _make_scheduler(self) -> Scheduler:
        return make_scheduler(self._config, self._runner, self._costs, self._adapters, self._scheduling)

    def _make_progress(self) -> Progress:
        return Progress(self._scheduler, self._live, self._adapters, self._steps, self._seq_ids)
