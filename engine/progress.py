"""What a step has sampled, applied to the requests: tokens appended, choices forked, searches advanced, ends.

Knows no runner and no queue.
"""

from __future__ import annotations

import time
from itertools import count

from engine.adapters import AddedAdapters
from engine.beams import Growth
from engine.errors import GuideFailed
from engine.group import Group, Search
from engine.live import LiveRequests
from engine.records import FinishReason, SampledRow, SampledTokens, StepPlan
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.stats import StepCounters


class Progress:
    """Moves live requests on; gives back what an ended one held. seq_ids: those not used yet."""

    def __init__(
        self,
        scheduler: Scheduler,
        live: LiveRequests,
        adapters: AddedAdapters,
        steps: StepCounters,
        seq_ids: count[int],
    ) -> None:
        self._scheduler = scheduler
        self._live = live
        self._adapters = adapters
        self._steps = steps
        self._seq_ids = seq_ids

    def apply(self, plan: StepPlan, running: dict[int, Sequence], sampled: SampledTokens) -> None:
        """The rows of a step that has succeeded. running: by seq_id, all that are in the plan."""
        now = time.monotonic()
        rows = {row.seq_id: row for row in sampled.rows}
        for share in plan.seqs:
            seq = running[share.seq_id]
            row = rows.get(share.seq_id)
            if seq.state != "running":  # another beam's error has ended it
                continue
            if row is None and (share.samples or share.scored):
                row = SampledRow(share.seq_id, error="the runner returned no token")
            if row is not None and row.error is not None:
                self.end(seq, "error", error=row.error)
                continue
            late = row is not None and row.late
            self._scheduler.advance(seq, share.count - late)
            if row is not None:
                seq.prompt_logprobs += row.prompt_logprobs
            if row is not None and share.samples and not late:
                self._take(seq, row, now)

    def end(self, seq: Sequence, finish: FinishReason, *, error: str | None = None) -> None:
        """End a live sequence, a beam with its whole search: all they hold is free at once."""
        for each in list(seq.companions):
            self._end(each, finish, error=error)

    def end_all(self, group: Group, finish: FinishReason) -> None:
        """End every live sequence of a request."""
        for seq in list(group.live):
            self._end(seq, finish)

    def close(
        self, seq: Sequence, finish: FinishReason, *, row: SampledRow | None = None, error: str | None = None
    ) -> None:
        """Let a sequence go that holds nothing any more."""
        if self._live.close(seq, finish, row=row, error=error):
            self._unpin(seq.request.adapter)

    def _take(self, seq: Sequence, row: SampledRow, now: float) -> None:
        is_first = seq.num_outputs == 0 and seq.index == 0
        self._steps.sampled(first_of_prompt=seq.prompt_len if is_first else None)
        group = self._live.group_of(seq)
        if isinstance(group, Search):
            if group.offer(seq, row.candidates):
                self._advance(group, now)
            return
        if seq.forks_due:
            for child in group.fork(seq, self._seq_ids):
                self._scheduler.fork(child, seq)
        try:
            finish = seq.append(row.token_id, now)
        except GuideFailed as failure:
            self.end(seq, "error", error=str(failure))
            return
        if finish is None:
            self._live.tell(seq, row)
        else:
            self._end(seq, finish, row=row)

    def _advance(self, search: Search, now: float) -> None:
        """All beams have been offered tokens: the best go on, and what the others held is free."""
        before = list(search.live)
        growths, over = search.advance()
        kept = [] if over else self._grow(growths, now)
        for beam in before:
            if beam not in kept:
                self._scheduler.remove(beam)
        if over:
            self._live.conclude(search)
            self._unpin(search.request.adapter)
        else:
            search.regroup(kept)

    def _grow(self, growths: list[Growth], now: float) -> list[Sequence]:
        """The beams that go on, best first; the first way of each to go on is its own, others branch off."""
        grown: dict[Sequence, Growth] = {}
        for growth in growths:
            beam = growth.beam
            if beam in grown:
                beam = growth.beam.branch(next(self._seq_ids), index=0, seed=growth.beam.seed)
                self._scheduler.branch(beam, growth.beam)
            grown[beam] = growth
        for beam, growth in grown.items():
            beam.append(growth.token.token_id, now)
            beam.logprobs.append(growth.token)
            beam.total = growth.total
        return list(grown)

    def _end(
        self, seq: Sequence, finish: FinishReason, *, row: SampledRow | None = None, error: str | None = None
    ) -> None:
        self._scheduler.remove(seq, forget=finish == "error")
        self.close(seq, finish, row=row, error=error)

    def _unpin(self, adapter: str | None) -> None:
        if adapter is not None:
            self._adapters.unpin(adapter)
