"""The choices of one request: which sequences make them, and the events they come to.

    Group        n choices, each told token by token as it comes
    BestOf       more choices than are wanted, held back until all have ended; the likeliest are told
    Search       the beams of one search; its hypotheses are told when it is over

Each choice has exactly one last event, also where a request ends before its choices have begun. Knows no
blocks, no queue and no runner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Ordered
from dataclasses import replace

from engine.beams import BeamSearch, Growth
from engine.records import Candidates, FinishReason, Request, SampledRow, TokenEvent, TokenLogprob
from engine.sampling import moved_seed
from engine.sequence import Sequence


class Group:
    """One request whose choices go their own ways.

    request: as it was asked. live: its sequences that have not ended.
    """

    def __init__(self, request: Request, lead: Sequence) -> None:
        self.request = request
        self.live = [lead]
        self._scores = lead.prompt_logprobs
        self._owes_scores = request.sampling.prompt_logprobs is not None
        lead.forks_due = request.sampling.num_sequences - 1

    def fork(self, lead: Sequence, seq_ids: Iterator[int]) -> list[Sequence]:
        """The other choices, once `lead` has computed the prompt."""
        count, lead.forks_due = lead.forks_due, 0
        children = [
            lead.branch(next(seq_ids), index=index, seed=moved_seed(lead.seed, index))
            for index in range(1, count + 1)
        ]
        self.live += children
        return children

    def choice(self, index: int) -> Sequence | None:
        """The live sequence that makes a choice, which may end alone; None where there is none such."""
        return next((seq for seq in self.live if seq.index == index and not seq.forks_due), None)

    def tell(self, seq: Sequence, row: SampledRow) -> list[TokenEvent]:
        """What comes of a token that did not end its choice."""
        return [TokenEvent(self.request.id, (row.token_id,), _logprobs(row), index=seq.index)]

    def with_scores(self, events: list[TokenEvent]) -> list[TokenEvent]:
        """The first event of choice 0 brings the prompt's log probabilities, if all of them are there."""
        whole = len(self._scores) == len(self.request.prompt) - 1
        for place, event in enumerate(events):
            if self._owes_scores and whole and event.index == 0:
                events[place] = replace(event, prompt_logprobs=tuple(self._scores))
                self._owes_scores = False
        return events

    def close(
        self, seq: Sequence, finish: FinishReason, now: float, row: SampledRow | None, error: str | None
    ) -> list[TokenEvent]:
        """What comes of the end of a sequence, with the token that ended it if one did."""
        self.live.remove(seq)
        event = TokenEvent(
            request_id=self.request.id,
            token_ids=() if row is None else (row.token_id,),
            logprobs=None if row is None else _logprobs(row),
            finish=finish,
            stop_token=None if row is None or finish != "stop" else seq.end_token,
            stats=seq.stats(now),
            error=error,
            index=seq.index,
        )
        # Choices that were never forked end with the one that should have computed their prompt.
        return [event, *(replace(event, index=index) for index in range(1, seq.forks_due + 1))]

    def _whole(
        self,
        event: TokenEvent,
        token_ids: Ordered[int],
        logprobs: Ordered[TokenLogprob],
        score: float,
    ) -> TokenEvent:
        """The last event of a choice, with all of it."""
        wanted = tuple(logprobs) if self.request.sampling.logprobs is not None else None
        return replace(event, token_ids=tuple(token_ids), logprobs=wanted, score=score)


class BestOf(Group):
    """One request of which the n choices with the highest logprob per token are handed out, best first."""

    def __init__(self, request: Request, lead: Sequence) -> None:
        super().__init__(request, lead)
        self._ended: list[TokenEvent] = []

    def choice(self, index: int) -> Sequence | None:
        """None: which sequence makes which choice is known when all have ended."""
        return None

    def tell(self, seq: Sequence, row: SampledRow) -> list[TokenEvent]:
        _keep(seq, row)
        return []

    def close(
        self, seq: Sequence, finish: FinishReason, now: float, row: SampledRow | None, error: str | None
    ) -> list[TokenEvent]:
        if row is not None:
            _keep(seq, row)
        for event in super().close(seq, finish, now, row, error):
            bare = replace(event, token_ids=(), logprobs=None)
            if row is not None:
                score = seq.total / seq.num_outputs
                bare = self._whole(bare, seq.token_ids[seq.prompt_len :], seq.logprobs, score)
            self._ended.append(bare)
        return [] if self.live else self._best()

    def _best(self) -> list[TokenEvent]:
        """Those that came to their end by their score, the earlier first among equals, then the others."""
        ranked = sorted(
            self._ended, key=lambda event: (event.score is None, -(event.score or 0.0), event.index)
        )
        wanted = ranked[: self.request.sampling.n]
        hidden = sum(event.stats.completion_tokens for event in ranked[len(wanted) :] if event.stats)
        lead, first = min(self._ended, key=lambda event: event.index), wanted[0]
        if first.stats is not None and lead.stats is not None:
            # The others found in the cache what the lead had computed for them.
            cached = lead.stats.cached_tokens
            stats = replace(first.stats, cached_tokens=cached, hidden_tokens=hidden)
            wanted[0] = replace(first, stats=stats)
        return [replace(event, index=index) for index, event in enumerate(wanted)]


class Search(Group):
    """One request that is searched with beams, which run together: `live` is the party of each.

    An error of one beam ends the search: without it the result would be another one.
    """

    def __init__(self, request: Request, lead: Sequence) -> None:
        super().__init__(request, lead)
        self._search = BeamSearch(
            request.sampling, request.sampling.num_sequences, lead.max_tokens, lead.stop_ids
        )
        self._offers: dict[int, Candidates] = {}
        lead.party = self.live
        lead.num_candidates = self._search.num_candidates

    def choice(self, index: int) -> Sequence | None:
        """None: beams make no choice alone."""
        return None

    def offer(self, beam: Sequence, candidates: Candidates) -> bool:
        """What a beam may go on with; says whether all have been offered something."""
        self._offers[beam.seq_id] = candidates
        return len(self._offers) == len(self.live)

    def advance(self) -> tuple[list[Growth], bool]:
        """What the beams go on with, best first, and whether the search is over."""
        growths, over = self._search.advance(self.live, self._offers)
        self._offers.clear()
        return growths, over

    def regroup(self, beams: Iterable[Sequence]) -> None:
        """`beams`, best first, are those that go on; places are kept for those there may be later."""
        self.live[:] = beams
        for beam in self.live:
            beam.forks_due = 0
        self.live[0].forks_due = self.request.sampling.num_sequences - len(self.live)

    def close(
        self, seq: Sequence, finish: FinishReason, now: float, row: SampledRow | None, error: str | None
    ) -> list[TokenEvent]:
        """Events come with the last beam: the search had no result."""
        self.live.remove(seq)
        if self.live:
            return []
        event = TokenEvent(self.request.id, (), finish=finish, stats=seq.stats(now), error=error)
        return [replace(event, index=index) for index in range(self.request.sampling.n)]

    def results(self, now: float) -> list[TokenEvent]:
        """The n best hypotheses; no beam is live any more."""
        stats = self.live[0].stats(now)
        self.live.clear()
        return [
            self._whole(
                TokenEvent(
                    self.request.id,
                    (),
                    finish="stop" if one.stopped else "length",
                    stop_token=one.token_ids[-1] if one.stopped else None,
                    stats=replace(stats, completion_tokens=len(one.token_ids)),
                    index=index,
                ),
                one.token_ids,
                one.logprobs,
                one.score,
            )
            for index, one in enumerate(self._search.best[: self.request.sampling.n])
        ]


def make_group(request: Request, lead: Sequence) -> Group:
    """The group of a request, begun with its first sequence."""
    sampling = request.sampling
    if sampling.beam_width is not None:
        return Search(request, lead)
    return BestOf(request, lead) if sampling.is_ranked else Group(request, lead)


def _keep(seq: Sequence, row: SampledRow) -> None:
    """Put down a token's logprob, by which its choice will be ranked."""
    if row.logprob is not None:
        seq.logprobs.append(row.logprob)
        seq.total += row.logprob.logprob


def _logprobs(row: SampledRow) -> tuple[TokenLogprob, ...] | None:
    return None if row.logprob is None else (row.logprob,)
