"""The reference backend: decoder, paged attention and adapters in torch. Always right, the tests' oracle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from engine.adapter_weights import AdapterWeights
from engine.attention import create_attention
from engine.attention.base import SeqSpan
from engine.memory import PASS_ROWS
from engine.models import load_decoder
from engine.models.adapter_batch import AdapterBatch
from engine.models.adapter_slots import AdapterSlots, FittedAdapter
from engine.models.base import ForwardBatch
from engine.modelspec import ModelSpec
from engine.ports import PreparedAdapter
from engine.prompt_logprobs import most_wanted, targets
from engine.ranking import Ranking, joined, rank
from engine.records import BlockCopy, SampledRow, ScheduledSeq
from engine.sampler import sample
from engine.scores import Scores, ranked


class ReferenceModel:
    """See engine.backends.StepModel."""

    def __init__(
        self, folder: Path, spec: ModelSpec, dtype: torch.dtype, num_blocks: int, max_rank: int
    ) -> None:
        """Reads the weights of `folder`. Raises BadWeights."""
        self._decoder = load_decoder(folder, spec, dtype)
        self._attention = create_attention("reference", spec, num_blocks, dtype)
        self._slots = AdapterSlots(spec, max_rank, dtype)

    @torch.inference_mode()
    def scores(self, seqs: Sequence[ScheduledSeq]) -> Scores:
        """See StepModel."""
        batch = self._batch(seqs)
        hidden = self._decoder.hidden(batch, self._attention)
        drawn = sum(seq.samples for seq in seqs)
        logits = self._logits(hidden, batch.adapters_at_rows, range(drawn))
        return ranked(logits, self._prompts(seqs, hidden, batch.adapters_at_rows, drawn))

    def _prompts(
        self, seqs: Sequence[ScheduledSeq], hidden: Tensor, adapters: AdapterBatch | None, drawn: int
    ) -> Ranking:
        """Of the rows behind the `drawn` first, a few at a time: together their logits may not fit."""
        tokens, most, found = targets(seqs), most_wanted(seqs), []
        for first in range(0, len(tokens), PASS_ROWS):
            some = tokens[first : first + PASS_ROWS]
            rows = range(drawn + first, drawn + first + len(some))
            found.append(rank(self._logits(hidden, adapters, rows), some, most))
        return joined(found)

    def _logits(self, hidden: Tensor, adapters: AdapterBatch | None, rows: range) -> Tensor:
        own = None if adapters is None else adapters.at(torch.arange(rows.start, rows.stop))
        return self._decoder.logits(hidden[rows.start : rows.stop], own)

    def sample(self, scores: Scores, seqs: Sequence[ScheduledSeq]) -> list[SampledRow]:
        """See StepModel."""
        return sample(scores, seqs)

    @torch.inference_mode()
    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """See StepModel."""
        for copy in copies:
            self._attention.copy_block(copy.source, copy.target)

    @torch.inference_mode()
    def prepare_adapter(self, weights: AdapterWeights) -> FittedAdapter:
        """See StepModel."""
        return self._slots.prepare(weights)

    def bind_adapter(self, slot: int, prepared: PreparedAdapter) -> None:
        """See StepModel. Raises ValueError for what the reference backend has not prepared."""
        self._slots.bind(slot, prepared)

    def unbind_adapter(self, slot: int) -> None:
        """See StepModel."""
        self._slots.unbind(slot)

    def _batch(self, seqs: Sequence[ScheduledSeq]) -> ForwardBatch:
        counts = [seq.count for seq in seqs]
        ends = torch.tensor(counts).cumsum(0)
        last = ends[torch.tensor([seq.samples for seq in seqs])] - 1
        firsts = (ends - torch.tensor([seq.start + seq.count for seq in seqs])).tolist()
        scored = [
            first + position for first, seq in zip(firsts, seqs, strict=True) for position in seq.scored
        ]
        rows = torch.cat([last, torch.tensor(scored, dtype=torch.int64)])
        adapters = self._slots.batch([seq.adapter_slot for seq in seqs], counts)
        return ForwardBatch(
            token_ids=torch.tensor(
                list(chain.from_iterable(seq.token_ids[seq.start : seq.start + seq.count] for seq in seqs))
            ),
            positions=torch.cat([torch.arange(seq.start, seq.start + seq.count) for seq in seqs]),
            rows=rows,
            attention=self._attention.plan([SeqSpan(seq.start, seq.count, seq.block_table) for seq in seqs]),
            adapters=adapters,
            adapters_at_rows=None if adapters is None else adapters.at(rows),
        )
