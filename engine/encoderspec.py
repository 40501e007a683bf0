"""What a BERT-like encoder is, read from its folder's config.json. Knows no tensors and imports no torch.

An encoder has no cache, no head and no end tokens, so it has a description of its own, no ModelSpec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.adapter_targets import AdapterTargets
from engine.errors import UnsupportedModel
from engine.modelspec import read_json

ROOT = "bert"
ATTENTION_IN = ("attention.self.query", "attention.self.key", "attention.self.value")
ATTENTION_OUT, UP, DOWN = "attention.output.dense", "intermediate.dense", "output.dense"
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
FIRST_NORM = f"{ROOT}.embeddings.LayerNorm"

_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
_ONLY: dict[str, tuple[object, ...]] = {
    "hidden_act": tuple(_ACTIVATIONS),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "quantization_config": (None,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """Immutable description of one encoder. activation: a name of engine.models.mlp.ACTIVATIONS."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    vocab_size: int
    max_position: int
    token_types: int
    eps: float
    activation: str
    transposed: bool = False

    def layer_at(self, layer: int) -> str:
        """Name of one layer's module."""
        return f"{ROOT}.encoder.layer.{layer}"

    @property
    def linear_modules(self) -> Mapping[str, tuple[int, int]]:
        """Linear modules of all layers: Hugging Face module name -> (out, in)."""
        size, inner = self.hidden_size, self.intermediate_size
        square = dict.fromkeys((*ATTENTION_IN, ATTENTION_OUT), (size, size))
        shapes = square | {UP: (inner, size), DOWN: (size, inner)}
        layers = map(self.layer_at, range(self.num_layers))
        return {f"{layer}.{module}": shape for layer in layers for module, shape in shapes.items()}

    @property
    def adapter_targets(self) -> AdapterTargets:
        """What an adapter may change: no head is among it."""
        layers = map(self.layer_at, range(self.num_layers))
        norms = [FIRST_NORM, *(f"{layer}.{norm}" for layer in layers for norm in NORMS)]
        sizes = dict.fromkeys(norms, self.hidden_size)
        linear = self.linear_modules
        return AdapterTargets(
            linear=linear,
            biases={name: out for name, (out, _) in linear.items()} | sizes,
            norms=sizes,
            embedding=f"{ROOT}.embeddings.word_embeddings",
            vocab=self.vocab_size,
            hidden=self.hidden_size,
            tied=False,
        )


def read_encoder_spec(folder: Path) -> EncoderSpec:
    """Read `folder`/config.json. Raises UnsupportedModel naming the key, the value met and those allowed."""
    config = read_json(folder / "config.json")
    required = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    if missing := [key for key in required if config.get(key) is None]:
        raise UnsupportedModel(f"config.json lacks {', '.join(missing)}")
    for key, allowed in _ONLY.items():
        if (met := config.get(key, allowed[0])) not in allowed:
            shown = ", ".join(str(value) for value in allowed)
            raise UnsupportedModel(f"{key} {met} is not supported; supported: {shown}")
    return EncoderSpec(
        hidden_size=int(config["hidden_size"]),
        intermediate_size=int(config["intermediate_size"]),
        num_layers=int(config["num_hidden_layers"]),
        num_heads=int(config["num_attention_heads"]),
        vocab_size=int(config["vocab_size"]),
        max_position=int(config.get("max_position_embeddings", 512)),
        token_types=int(config.get("type_vocab_size", 2)),
        eps=float(config.get("layer_norm_eps", 1e-12)),
        activation=_ACTIVATIONS[config.get("hidden_act", "gelu")],
    )
