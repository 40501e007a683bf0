"""Native models beside reference runners, over saved tiny models and over shapes drawn at will."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engine.adapter_weights import AdapterWeights, LoraPair
from engine.config import EngineConfig, blocks_for
from engine.dtypes import DTYPES
from engine.modelspec import ModelSpec, read_spec
from engine.native.levels import Level
from engine.native.model import NativeModel
from engine.records import ScheduledSeq
from engine.runner import Runner, build_runner
from tests.unit.engine.conftest import MOST_GROUPS, Row

NUM_BLOCKS = 192
AVX512 = {"avx512_bf16", "avx512_vnni"} <= set(Path("/proc/cpuinfo").read_text().split())
TILE_LEVELS: list[Level] = ["best", "emulated-amx"] if AVX512 else ["best"]
"""The best level, and that of tiles where this processor can emulate them."""


class KeptLogits(NativeModel):
    """Tests compare the logits of several steps; the model itself keeps those of the last one only."""

    def logits(self, seqs: Sequence[ScheduledSeq]) -> torch.Tensor:
        return self.scores(seqs).logits.clone()

    def adapt(self, slot: int, weights: AdapterWeights) -> None:
        """Fill a slot."""
        self.bind_adapter(slot, self.prepare_adapter(weights))


def native(folder: Path, *, dtype: str = "float32", **settings: Any) -> KeptLogits:
    """The native model of `folder`, its weights loaded; settings as NativeModel takes them."""
    usual: dict[str, Any] = {"threads": 2, "max_rank": 64}
    model = KeptLogits(read_spec(folder), DTYPES[dtype], NUM_BLOCKS, **usual | settings)
    model.load(folder)
    return model


def reference(folder: Path, dtype: str = "float32") -> Runner:
    """The oracle."""
    return build_runner(EngineConfig(model=folder, dtype=dtype, num_blocks=NUM_BLOCKS, backend="reference"))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Shape:
    """What a drawn model looks like; `window` 0 means none."""

    hidden: int = 32
    inner: int = 48
    kv_heads: int = 2
    group: int = 2
    head_dim: int = 16
    vocab: int = 64
    window: int = 0
    family: str = "Llama"
    tied: bool = False
    biased: bool = False


def save_drawn(shape: Shape, folder: Path) -> Path:
    """Two layers of random weights in the layout of a model folder."""
    config: dict[str, Any] = {
        "architectures": [f"{shape.family}ForCausalLM"],
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": 2,
        "num_attention_heads": shape.kv_heads * shape.group,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": NUM_BLOCKS * 16,
        "tie_word_embeddings": shape.tied,
        "attention_bias": shape.biased and shape.family == "Llama",
        "mlp_bias": shape.biased and shape.family == "Llama",
        "sliding_window": shape.window or None,
        "use_sliding_window": shape.window > 0,
        "max_window_layers": 1,
        "eos_token_id": 2,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(read_spec(folder)), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def adapter(spec: ModelSpec, rank: int, seed: int, modules: Sequence[str]) -> AdapterWeights:
    """Random deltas of about the base weights' size for `modules` ("self_attn.q_proj", ...) of all layers."""
    random = torch.Generator().manual_seed(seed)
    pairs = {}
    for name, (out, width) in spec.linear_modules.items():
        if name.split(".", 3)[3] in modules:
            a = torch.randn(rank, width, generator=random) / width**0.5
            pairs[name] = LoraPair(a, torch.randn(out, rank, generator=random) * 0.5, 0.7)
    return AdapterWeights(f"sha256:{seed}", pairs)


@contextmanager
def torch_threads_kept() -> Iterator[None]:
    """The native backend leaves torch a single thread; other tests get theirs back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def make_rows(lengths: Sequence[int], vocab: int, seed: int, slots: Sequence[int] = ()) -> list[Row]:
    """Sequences of those lengths with tokens of their own and scattered blocks."""
    random = torch.Generator().manual_seed(seed)
    free = torch.randperm(NUM_BLOCKS, generator=random).tolist()
    rows = []
    for i, length in enumerate(lengths):
        ids = torch.randint(0, vocab, (length,), generator=random).tolist()
        table = [free.pop() for _ in range(blocks_for(length) * MOST_GROUPS)]
        rows.append(Row(i, ids, table, adapter_slot=slots[i] if slots else 0))
    return rows


def _weights(spec: ModelSpec) -> dict[str, torch.Tensor]:
    torch.manual_seed(spec.hidden_size + spec.head_dim)
    vocab = (spec.vocab_size, spec.hidden_size)
    tensors = {"model.embed_tokens.weight": torch.randn(vocab)}
    if not spec.tie_embeddings:
        tensors["lm_head.weight"] = torch.randn(vocab) / spec.hidden_size**0.5
    norms = ["model.norm"]
    for name, shape in spec.linear_modules.items():
        tensors[f"{name}.weight"] = torch.randn(shape) / shape[1] ** 0.5
        if _biased(spec, name):
            tensors[f"{name}.bias"] = torch.randn(shape[0]) * 0.2
    for layer in range(spec.num_layers):
        prefix = f"model.layers.{layer}"
        norms += [f"{prefix}.input_layernorm", f"{prefix}.post_attention_layernorm"]
        for name in ("q_norm", "k_norm") if spec.qk_norm else ():
            tensors[f"{prefix}.self_attn.{name}.weight"] = 1 + torch.randn(spec.head_dim) * 0.2
    tensors |= {f"{name}.weight": 1 + torch.randn(spec.hidden_size) * 0.2 for name in norms}
    return tensors


def _biased(spec: ModelSpec, name: str) -> bool:
    if name.endswith(("q_proj", "k_proj", "v_proj")):
        return spec.qkv_bias
    return spec.o_bias if name.endswith("o_proj") else spec.mlp_bias
