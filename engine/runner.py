"""Turns a step plan into tokens: owns the weights, the paged cache and the adapter slots. Decides nothing."""

from __future__ import annotations

from itertools import chain

import torch

from engine.attention import create_attention
from engine.attention.base import AttentionBackend, SeqSpan
from engine.config import EngineConfig
from engine.errors import InvalidConfig
from engine.lora import AdapterWeights, LoraSlots
from engine.models import load_decoder
from engine.models.base import Decoder, ForwardBatch
from engine.modelspec import ModelSpec, read_spec
from engine.records import SampledTokens, ScheduledSeq, StepPlan
from engine.sampler import sample

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Runner:
    """The ModelRunner over real tensors. Called from one thread at a time."""

    def __init__(
        self,
        spec: ModelSpec,
        decoder: Decoder,
        attention: AttentionBackend,
        slots: LoraSlots,
        num_blocks: int,
    ) -> None:
        self._spec = spec
        self._decoder = decoder
        self._attention = attention
        self._slots = slots
        self._num_blocks = num_blocks

    @property
    def num_blocks(self) -> int:
        """KV blocks, ids 0 .. num_blocks - 1."""
        return self._num_blocks

    @property
    def model_len(self) -> int:
        """Positions the model was made for."""
        return self._spec.max_position

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 .. vocab_size - 1."""
        return self._spec.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a completion."""
        return frozenset(self._spec.eos_token_ids)

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> SampledTokens:
        """Compute one step; logits are made for the rows that sample, and no others."""
        logits = self.logits(plan.seqs)
        return SampledTokens(tuple(sample(logits, [seq for seq in plan.seqs if seq.samples])))

    @torch.inference_mode()
    def logits(self, seqs: tuple[ScheduledSeq, ...]) -> torch.Tensor:
        """Write keys and values of `seqs`; float32 [S, vocab] for the S of them that sample, in order."""
        return self._decoder.forward(self._batch(seqs), self._attention)

    @torch.inference_mode()
    def load_adapter(self, slot: int, weights: AdapterWeights) -> int:
        """Fill a slot and return its bytes. Raises AdapterTooLarge or AdapterMismatch."""
        return self._slots.load(slot, weights)

    def unload_adapter(self, slot: int) -> int:
        """Empty a slot and return the bytes it held."""
        return self._slots.unload(slot)

    def _batch(self, seqs: tuple[ScheduledSeq, ...]) -> ForwardBatch:
        counts = [seq.count for seq in seqs]
        ends = torch.tensor(counts).cumsum(0) - 1
        return ForwardBatch(
            token_ids=torch.tensor(
                list(chain.from_iterable(seq.token_ids[seq.start : seq.start + seq.count] for seq in seqs))
            ),
            positions=torch.cat([torch.arange(seq.start, seq.start + seq.count) for seq in seqs]),
            rows=ends[torch.tensor([seq.samples for seq in seqs])],
            attention=self._attention.plan([SeqSpan(seq.start, seq.count, seq.block_table) for seq in seqs]),
            lora=self._slots.batch([seq.adapter_slot for seq in seqs], counts),
        )


def build_runner(config: EngineConfig) -> Runner:
    """Load `config.model` and lay out its cache. Raises UnsupportedModel, BadWeights or InvalidConfig."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    spec = read_spec(config.model)
    dtype = DTYPES[config.dtype]
    num_blocks = _num_blocks(config, spec)
    return Runner(
        spec=spec,
        decoder=load_decoder(config.model, spec, dtype),
        attention=create_attention("reference", spec, num_blocks, dtype),
        slots=LoraSlots(spec, config.max_lora_rank, dtype),
        num_blocks=num_blocks,
    )


def _num_blocks(config: EngineConfig, spec: ModelSpec) -> int:
    if config.num_blocks is not None:
        return config.num_blocks
    block = spec.block_bytes(config.dtype)
    if config.kv_bytes < block:
        raise InvalidConfig(f"kv_bytes is {config.kv_bytes}; one block of this model takes {block}")
    return config.kv_bytes // block
