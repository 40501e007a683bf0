"""How a model folder makes vectors of texts: what model it is, how it pools, whether it normalises, how much
it reads. Beside the model's own files it is what sentence-transformers writes. Imports no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.encoderspec import EncoderSpec, read_encoder_spec
from engine.errors import InvalidConfig, UnsupportedModel
from engine.modelspec import ModelSpec, is_encoder, read_json, read_spec

Pooling = Literal["mean", "cls", "last"]

_FLAGS: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_MODES: Mapping[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_MODULES = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSpec:
    """model: an encoder or a decoder. normalize: vectors of length 1. max_tokens: of one text."""

    model: EncoderSpec | ModelSpec
    pooling: Pooling
    normalize: bool
    max_tokens: int


def read_embedding_spec(
    folder: Path,
    *,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    max_tokens: int | None = None,
) -> EmbeddingSpec:
    """What is given, else what the folder says, else the usual.

    That is the mean over the tokens of an encoder and the last token of a decoder, of length 1, of texts as
    long as the model has positions. Raises UnsupportedModel, or InvalidConfig for more tokens than that.
    """
    model = read_text_model(folder)
    modules = _modules(folder / "modules.json")
    usual: Pooling = "mean" if isinstance(model, EncoderSpec) else "last"
    longest = max_tokens or min(_asked_length(folder) or model.max_position, model.max_position)
    if longest > model.max_position:
        raise InvalidConfig(f"max_model_len is {longest}; the model allows {model.max_position}")
    return EmbeddingSpec(
        model=model,
        pooling=pooling or _asked_pooling(folder / "1_Pooling" / "config.json") or usual,
        normalize=(not modules or "Normalize" in modules) if normalize is None else normalize,
        max_tokens=longest,
    )


def read_text_model(folder: Path) -> EncoderSpec | ModelSpec:
    """An encoder, a decoder, or a decoder that was saved without its head. Raises UnsupportedModel."""
    if is_encoder(folder):
        return read_encoder_spec(folder)
    try:
        return read_spec(folder)
    except UnsupportedModel:
        return read_spec(folder, headless=True)


def _asked_pooling(path: Path) -> Pooling | None:
    """None without that file. Raises UnsupportedModel for another pooling, or for several."""
    if not path.exists():
        return None
    config = read_json(path)
    asked = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    names = {**_FLAGS, **_MODES}
    if isinstance(mode := config.get("pooling_mode"), str):
        asked = [mode]
    if len(asked) != 1 or asked[0] not in names:
        met = ", ".join(asked) or "none"
        raise UnsupportedModel(f"pooling {met} is not supported; supported: one of {', '.join(_MODES)}")
    return names[asked[0]]


def _asked_length(folder: Path) -> int | None:
    path = folder / "sentence_bert_config.json"
    length = read_json(path).get("max_seq_length") if path.exists() else None
    return length if isinstance(length, int) and length > 0 else None


def _modules(path: Path) -> tuple[str, ...]:
    """Kinds of the modules that make a vector, () where none are told. Raises UnsupportedModel."""
    if not path.exists():
        return ()
    try:
        kinds = tuple(str(module["type"]).rsplit(".", 1)[-1] for module in json.loads(path.read_bytes()))
    except (ValueError, TypeError, KeyError) as error:
        raise UnsupportedModel(f"{path} is no list of modules: {error!r}") from error
    for kind in kinds:
        if kind not in _MODULES:
            raise UnsupportedModel(f"module {kind} is not supported; supported: {', '.join(_MODULES)}")
    return kinds
