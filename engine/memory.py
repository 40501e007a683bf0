"""Where an engine's memory goes, reckoned before any of it is taken: what is left is the KV pool's.

    weights     every tensor of the checkpoint as it is held: in `dtype`, or in eight bits and a scale a row
    adapters    adapter_bytes, or every slot filled, each module at the highest rank
    step        rows of the largest step on their way through a layer, and logits for every sequence, and for
                the positions of prompts that are scored together
    host        swap_bytes, blocks of preempted sequences
    headroom    the process itself: interpreter, torch, tokenizer, request queues

Knows no tensor's values and takes nothing.
"""

from __future__ import annotations

import json
import os
from math import prod
from pathlib import Path

from engine.config import BLOCK_SIZE, EngineConfig
from engine.encoderspec import EncoderSpec
from engine.errors import BadWeights, InvalidConfig
from engine.modelspec import DTYPE_BYTES, ModelSpec
from engine.records import MemorySplit

HEADROOM = 512 << 20
DEFAULT_KV_BYTES = 1 << 30
"""Of the KV pool where the settings name neither it nor a budget for all."""

PASS_ROWS = 64
"""Positions of prompts whose logits are there at once; kPassRows of native/csrc/head.h."""

_LENGTH_BYTES = 8
_PLACE_BYTES = 12
"""Of a block of B: struct Block in native/csrc/kernels.h."""


def split_memory(config: EngineConfig, spec: ModelSpec) -> MemorySplit:
    """What each part takes of `config.memory_bytes`, or of what the pool's own size makes of it.

    Raises InvalidConfig with all numbers where less than a token's blocks is left, or where they take more
    than the machine has, BadWeights.
    """
    split = MemorySplit(
        weights=weight_bytes(config.model, spec, config.dtype, int8=config.weights == "int8"),
        adapters=adapter_budget(config, spec),
        step=_step_bytes(spec, config),
        host=config.swap_bytes,
        headroom=HEADROOM,
    )
    block = spec.block_bytes(config.kv_dtype)
    if config.num_blocks is not None:
        kv = config.num_blocks * block
    elif config.memory_bytes is not None:
        kv = config.memory_bytes - split.total
    else:
        kv = DEFAULT_KV_BYTES if config.kv_bytes is None else config.kv_bytes
    least = block * len(spec.kv_groups.windows)
    if kv < least and config.num_blocks is None:
        given = f"kv_bytes is {kv}"
        if config.memory_bytes is not None:
            given = f"memory_bytes is {config.memory_bytes}, of which {split} leave {kv} for the KV pool"
        raise InvalidConfig(f"{given}; {BLOCK_SIZE} tokens of this model take {least}")
    _check_machine(kv, config.swap_bytes)
    return split.with_kv(kv // block * block)


def adapter_budget(config: EngineConfig, spec: ModelSpec | EncoderSpec) -> int:
    """Bytes that all adapters in memory may take together."""
    if config.adapter_bytes is not None:
        return config.adapter_bytes
    element = DTYPE_BYTES[config.dtype]
    pairs = (pair_bytes(config.max_lora_rank, *shape, element) for shape in spec.linear_modules.values())
    return config.adapter_slots * sum(pairs)


def pair_bytes(rank: int, out: int, width: int, element: int) -> int:
    """What the pair of one module, B [out, rank] and A [rank, width], takes at most.

    As the native backend packs it, see native/csrc/changes.cpp; the reference takes the bare matrices. Ranks
    are even, A's rows whole cache lines. B comes in blocks of 16 columns, each with its place: the first and
    the last may be shared with a neighbour, or be there to fill a panel of two.
    """
    ranks = (rank + 1) // 2 * 2
    blocks = out // 16 + 2
    return ranks * (-(-width * element // 64) * 64) + blocks * (16 * ranks * element + _PLACE_BYTES)


def _check_machine(kv: int, host: int) -> None:
    """Taken lazily, they would be missed only when a step writes them."""
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if kv + host > present:
        raise InvalidConfig(
            f"the KV pool takes {kv} bytes and swap_bytes {host}; this machine has {present} in all"
        )


def weight_bytes(folder: Path, spec: ModelSpec, dtype: str, *, int8: bool) -> int:
    """Bytes of the checkpoint's tensors as they are held. Raises BadWeights for a file that is damaged."""
    # A checkpoint may leave out the root of its names, so only their ends are looked at.
    tables = [name.rpartition(".")[2] for name in (spec.names.embedding, spec.names.places) if name]
    ends = tuple(f"{table}.weight" for table in tables)
    total = 0
    for file in sorted(folder.glob("*.safetensors")):
        for name, shape in _shapes(file).items():
            rounded = int8 and len(shape) > 1 and (spec.tie_embeddings or not name.endswith(ends))
            total += prod(shape) + 4 * shape[0] if rounded else prod(shape) * DTYPE_BYTES[dtype]
    return total


def _shapes(file: Path) -> dict[str, list[int]]:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        try:
            header = json.loads(stream.read(min(length, file.stat().st_size)))
            return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadWeights(f"{file} cannot be read: no safetensors header: {error}") from error


def _step_bytes(spec: ModelSpec, config: EngineConfig) -> int:
    """A row's residual stream twice, its queries, keys and values, what attention and the MLP make of it.

    Of a mixture also what each chosen expert reads and makes of the row.
    """
    heads = (2 * spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim
    chosen = 0 if spec.experts is None else spec.experts.per_token
    inner = spec.intermediate_size if spec.experts is None else spec.experts.width * chosen
    row = (4 + 2 * chosen) * spec.hidden_size + 2 * heads + 3 * inner + 3 * config.max_lora_rank
    logits = (min(config.max_num_seqs, config.max_batched_tokens) + PASS_ROWS) * spec.vocab_size
    return 4 * (config.max_batched_tokens * row + logits)
