"""Turns a step plan into tokens: a model on some backend, and the sampler. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch

from engine.adapter_weights import AdapterWeights
from engine.backends import StepModel, open_model
from engine.config import EngineConfig
from engine.copy_probe import seconds_per_block
from engine.kv_groups import Window
from engine.memory import split_memory
from engine.modelspec import ModelSpec, read_spec
from engine.ports import PreparedAdapter
from engine.prompt_logprobs import with_prompts
from engine.records import MemorySplit, SampledTokens, ScheduledSeq, SlotChange, StepPlan
from engine.restriction import restricted

logger = logging.getLogger(__name__)


class Runner:
    """The ModelRunner over real tensors. Called from one thread at a time."""

    def __init__(
        self,
        spec: ModelSpec,
        model: StepModel,
        memory: MemorySplit,
        num_blocks: int,
        num_host_blocks: int,
        block_bytes: int,
    ) -> None:
        self._spec = spec
        self._model = model
        self._memory = memory
        self._windows = spec.kv_groups.windows
        self._num_blocks = num_blocks
        self._num_host_blocks = num_host_blocks
        self._block_bytes = block_bytes

    @property
    def num_blocks(self) -> int:
        """KV blocks, ids 0 .. num_blocks - 1."""
        return self._num_blocks

    @property
    def memory(self) -> MemorySplit:
        """Bytes set aside for all it has."""
        return self._memory

    @property
    def num_host_blocks(self) -> int:
        """Blocks that only copies name, ids from num_blocks on. Here all memory is the host's."""
        return self._num_host_blocks

    @property
    def attention_balance(self) -> float:
        """Context at which a token's attention takes as long as its products."""
        return self._spec.attention_balance()

    def block_seconds(self) -> float:
        """Seconds that the copy of a block to host memory takes, measured now; 0 where there is none."""
        return seconds_per_block(self._model, self._num_blocks, self._num_host_blocks, self._block_bytes)

    @property
    def block_bytes(self) -> int:
        """Bytes of one KV block, the layers of its group together."""
        return self._block_bytes

    @property
    def model_len(self) -> int:
        """Positions the model was made for."""
        return self._spec.max_position

    @property
    def windows(self) -> tuple[Window, ...]:
        """Of the KV groups of its layers."""
        return self._windows

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 .. vocab_size - 1."""
        return self._spec.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Tokens that end a completion."""
        return frozenset(self._spec.eos_token_ids)

    def run(self, plan: StepPlan) -> SampledTokens:
        """Compute one step; logits are made for the rows that sample or are scored, and no others."""
        self.change_slots(plan.slots)
        if plan.copies:
            self._model.copy_blocks(plan.copies)
        scores = self._model.scores(plan.seqs)
        rows = restricted([seq for seq in plan.seqs if seq.samples])
        drawn = rows.settle(self._model.sample(scores, rows.seqs))
        return SampledTokens(with_prompts(drawn, plan.seqs, scores.prompts))

    def logits(self, seqs: tuple[ScheduledSeq, ...]) -> torch.Tensor:
        """Write keys and values of `seqs`; float32 [S, vocab] for the S of them that sample, in order."""
        return self._model.scores(seqs).logits

    def prepare_adapter(self, weights: AdapterWeights) -> PreparedAdapter:
        """Any thread, beside a running step. Raises AdapterTooLarge, AdapterMismatch or MemoryError."""
        return self._model.prepare_adapter(weights)

    def change_slots(self, changes: Iterable[SlotChange]) -> None:
        """Bind and unbind between two steps."""
        for change in changes:
            if change.adapter is None:
                self._model.unbind_adapter(change.slot)
            else:
                self._model.bind_adapter(change.slot, change.adapter)


def build_runner(config: EngineConfig) -> Runner:
    """Load `config.model` and lay out its cache.

    Raises UnsupportedModel, BadWeights, NativeUnavailable or InvalidConfig.
    """
    spec = read_spec(config.model).serving(config.max_model_len)
    memory = split_memory(config, spec)
    block_bytes = spec.block_bytes(config.kv_dtype)
    num_blocks, num_host_blocks = memory.kv // block_bytes, config.swap_bytes // block_bytes
    logger.info("memory of %s in bytes: %s; %d in all", config.model.name, memory, memory.total)
    model = open_model(config, spec, num_blocks + num_host_blocks)
    return Runner(spec, model, memory, num_blocks, num_host_blocks, block_bytes)
