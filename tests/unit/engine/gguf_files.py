"""GGUF files of tiny models, written as llama.cpp's converter writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import load_file

from tests.unit.engine.conftest import CHATML, byte_level_encoder

Tensors = dict[str, torch.Tensor]
Json = dict[str, Any]

ARCHES = {
    "Llama": gguf.MODEL_ARCH.LLAMA,
    "Mistral": gguf.MODEL_ARCH.LLAMA,
    "Mixtral": gguf.MODEL_ARCH.LLAMA,
    "Qwen2": gguf.MODEL_ARCH.QWEN2,
    "Qwen3": gguf.MODEL_ARCH.QWEN3,
    "Qwen3Moe": gguf.MODEL_ARCH.QWEN3MOE,
    "Gemma2": gguf.MODEL_ARCH.GEMMA2,
    "Gemma3": gguf.MODEL_ARCH.GEMMA3,
    "Phi3": gguf.MODEL_ARCH.PHI3,
    "GPT2": gguf.MODEL_ARCH.GPT2,
}
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
_CONV1D = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")


def save_model(name: str, folder: Path, **changes: Any) -> Any:
    """A random model of family `name` in `folder`, and transformers' instance of it."""
    shape: Json = {
        "vocab_size": byte_level_encoder().get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "pad_token_id": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config_class = {"Gemma3": "Gemma3TextConfig"}.get(name, f"{name}Config")
    model_class = {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
    torch.manual_seed(sum(map(ord, name)))
    config = getattr(transformers, config_class)(**{**shape, **changes})
    model = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            if key.endswith("bias") or "norm" in key or ".ln_" in key:
                tensor.add_(torch.randn_like(tensor) * 0.2)
    model.save_pretrained(folder)
    return model


def write_model(
    path: Path, name: str, folder: Path, *, keys: Mapping[str, Any] | None = None, **changes: Any
) -> Path:
    """The model of `folder` as a GGUF file.

    keys: metadata by name within the architecture, None leaves a key out. changes: pre, tokens (a method
    that adds a vocabulary), extra (tensors), kinds (quantization by tensor name), raw (bytes and their
    quantization), split.
    """
    config = json.loads((folder / "config.json").read_text())
    arch = ARCHES[name]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    for key, value in {**metadata(config), **(keys or {})}.items():
        if value is not None:
            _add(writer, f"{gguf.MODEL_ARCH_NAMES[arch]}.{key}", value)
    if "split" in changes:
        writer.add_uint16("split.count", changes["split"])
    changes.get("tokens", add_byte_level)(writer, changes)
    tensors = converted(load_file(folder / "model.safetensors"), arch, config)
    for tensor, values in {**tensors, **changes.get("extra", {})}.items():
        kind = changes.get("kinds", {}).get(tensor)
        if tensor in changes.get("raw", {}):
            data, kind = changes["raw"][tensor]
            writer.add_tensor(tensor, data, raw_dtype=kind)
        elif kind is None:
            writer.add_tensor(tensor, values.float().numpy())
        else:
            writer.add_tensor(tensor, gguf.quantize(values.float().numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def metadata(config: Json) -> Json:
    """The figures that the converter writes for every family, by their names within the architecture."""
    get, gpt2 = config.get, config["model_type"] == "gpt2"
    norm = "layer_norm_epsilon" if gpt2 else "layer_norm_rms_epsilon"
    heads = get("num_attention_heads") or config["n_head"]
    rope = get("rope_parameters") or {}
    found = {
        "block_count": get("num_hidden_layers") or config["n_layer"],
        "context_length": get("max_position_embeddings") or config["n_positions"],
        "embedding_length": get("hidden_size") or config["n_embd"],
        "feed_forward_length": get("intermediate_size") or config["n_inner"],
        "attention.head_count": heads,
        f"attention.{norm}": get("rms_norm_eps") or config["layer_norm_epsilon"],
    }
    if gpt2:
        return found
    head_dim = get("head_dim") or config["hidden_size"] // heads
    return {
        **found,
        "attention.head_count_kv": get("num_key_value_heads"),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.freq_base": rope.get("rope_theta", 10000.0),
        "rope.dimension_count": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
    }


def converted(tensors: Tensors, arch: gguf.MODEL_ARCH, config: Json) -> Tensors:
    """Under GGUF's names and in its layout."""
    names = gguf.get_tensor_name_map(arch, config.get("num_hidden_layers") or config["n_layer"])
    stacks: dict[str, dict[int, torch.Tensor]] = {}
    found: Tensors = {}
    for name, tensor in tensors.items():
        if match := _EXPERT.fullmatch(name):
            stacks.setdefault(f"{match[1]}.{match[3]}.weight", {})[int(match[2])] = tensor
            continue
        found[_renamed(names, name)] = tensor
    for name, experts in stacks.items():
        found[_renamed(names, name)] = torch.stack([experts[number] for number in sorted(experts)])
    return {name: _laid_out(name, tensor, arch, config).contiguous() for name, tensor in found.items()}


def _renamed(names: Any, name: str) -> str:
    stem, _, kind = name.rpartition(".")
    mapped = names.get_name(stem)
    assert mapped is not None, f"the converter knows no {name}"
    return f"{mapped}.{kind}"


def _laid_out(name: str, tensor: torch.Tensor, arch: gguf.MODEL_ARCH, config: Json) -> torch.Tensor:
    if arch is gguf.MODEL_ARCH.LLAMA and ".attn_q." in name:
        return interleaved(tensor, config["num_attention_heads"])
    if arch is gguf.MODEL_ARCH.LLAMA and ".attn_k." in name:
        return interleaved(tensor, config["num_key_value_heads"])
    if arch in (gguf.MODEL_ARCH.GEMMA2, gguf.MODEL_ARCH.GEMMA3) and name.endswith("norm.weight"):
        return tensor + 1
    return tensor.T if arch is gguf.MODEL_ARCH.GPT2 and name.endswith(_CONV1D) else tensor


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The two members of each rotated pair side by side."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def add_byte_level(writer: Any, changes: Json) -> None:
    """The vocabulary of byte_level_encoder."""
    add_bpe(writer, byte_level_encoder(), pre=changes.get("pre", "smollm"))
    writer.add_eot_token_id(0)
    writer.add_add_bos_token(changes.get("add_bos", False))
    writer.add_chat_template(CHATML)


def add_bpe(writer: Any, encoder: tokenizers.Tokenizer, pre: str | None) -> None:
    """A byte-level vocabulary with its merges; 1 begins a text, 2 ends it."""
    vocab = sorted(encoder.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(encoder.to_str())["model"]["merges"]
    added = encoder.get_added_tokens_decoder()
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types([(3 if added[i].special else 4) if i in added else 1 for _, i in vocab])
    writer.add_token_merges([" ".join(merge) for merge in merges])
    _add_ends(writer)


def add_sentencepiece(writer: Any, changes: Json) -> None:
    """`pieces`: token, score and kind of each."""
    pieces = changes["pieces"]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _, _ in pieces])
    writer.add_token_scores([score for _, score, _ in pieces])
    writer.add_token_types([kind for _, _, kind in pieces])
    if "add_space_prefix" in changes:
        writer.add_add_space_prefix(changes["add_space_prefix"])
    _add_ends(writer)


def _add_ends(writer: Any) -> None:
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)


def _add(writer: Any, key: str, value: Any) -> None:
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    kinds.get(type(value), writer.add_array)(key, value)


def llama3_frequencies(theta: float, head_dim: int, factor: float) -> torch.Tensor:
    """What the converter writes for Llama 3.1: a divisor of each frequency."""
    found = []
    for i in range(head_dim // 2):
        wavelength = 2 * np.pi * theta ** (2 * i / head_dim)
        smooth = (8192 / wavelength - 1) / 3
        between = 1 / ((1 - smooth) / factor + smooth)
        found.append(1.0 if wavelength < 8192 / 4 else factor if wavelength > 8192 else between)
    return torch.tensor(found)
