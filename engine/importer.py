"""GGUF file to model folder: plain safetensors, config, tokenizer and chat template in Hugging Face layout.

Quantized tensors are expanded, so the folder can be served and trained alike. What the importer does
not know, it refuses: an architecture, a RoPE scaling, a tokenizer or a pre-tokenizer it has no row for.
The folder appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

from engine.config import Dtype
from engine.errors import UnsupportedModel
from engine.gguf_tokenizer import GgufTokenizer, read_tokenizer

_GLOBAL_TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def import_gguf(source: Path, folder: Path, dtype: Dtype = "bfloat16") -> Path:
    """Convert `source` into `folder` and return it; a folder that exists is left as it is.

    Raises UnsupportedModel naming what was met, OSError where files cannot be read or written.
    """
    if folder.exists():
        return folder
    reader = _open(source)
    meta = _metadata(reader)
    try:
        config, tokenizer = _config(meta, reader, dtype), read_tokenizer(meta)
    except KeyError as error:
        raise UnsupportedModel(f"{source} lacks the metadata {error.args[0]}") from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        tensors = _tensors(reader, config, _DTYPES[dtype])
        save_file(tensors, partial / "model.safetensors", metadata={"format": "pt"})
        _write_json(partial / "config.json", config)
        _write_json(partial / "generation_config.json", _generation_config(tokenizer))
        tokenizer.write(partial)
        _publish(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _open(source: Path) -> Any:
    try:
        return gguf.GGUFReader(source)
    except ValueError as error:
        raise UnsupportedModel(f"{source} is not a GGUF file: {error}") from error


def _metadata(reader: Any) -> dict[str, Any]:
    return {key: field.contents() for key, field in reader.fields.items()}


def _config(meta: dict[str, Any], reader: Any, dtype: Dtype) -> dict[str, Any]:
    """config.json. float32 figures of the file are written as the decimals they were made from."""
    if (arch := meta.get("general.architecture")) != "llama":
        raise UnsupportedModel(f"GGUF architecture {arch} is not supported; supported: llama")
    if (scaling := meta.get("llama.rope.scaling.type", "none")) != "none":
        raise UnsupportedModel(f"GGUF RoPE scaling {scaling} is not supported; supported: none")
    heads = int(meta["llama.attention.head_count"])
    names = {tensor.name for tensor in reader.tensors}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": dtype,
        "hidden_act": "silu",
        "hidden_size": int(meta["llama.embedding_length"]),
        "intermediate_size": int(meta["llama.feed_forward_length"]),
        "num_hidden_layers": int(meta["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(meta.get("llama.attention.head_count_kv", heads)),
        "head_dim": int(meta.get("llama.attention.key_length", meta["llama.embedding_length"] // heads)),
        "max_position_embeddings": int(meta["llama.context_length"]),
        "rms_norm_eps": _decimal(meta["llama.attention.layer_norm_rms_epsilon"]),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _decimal(meta.get("llama.rope.freq_base", 10000.0)),
        },
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_down.bias" in names,
        "tie_word_embeddings": "output.weight" not in names,
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id"),
    }


def _decimal(value: float) -> float:
    return float(str(np.float32(value)))


def _generation_config(tokenizer: GgufTokenizer) -> dict[str, Any]:
    return {"bos_token_id": tokenizer.bos_id, "eos_token_id": list(tokenizer.end_ids)}


def _tensors(reader: Any, config: dict[str, Any], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    found: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32))
        part = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if part in heads:
            values = _halves(values, heads[part])
        found[_hf_name(tensor.name)] = values.to(dtype).contiguous()
    return found


def _halves(values: torch.Tensor, heads: int) -> torch.Tensor:
    """GGUF keeps the two members of a rotated pair side by side, Hugging Face in the head's two halves."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return pairs.transpose(1, 2).reshape(values.shape)


def _hf_name(name: str) -> str:
    if name in _GLOBAL_TENSORS:
        return _GLOBAL_TENSORS[name]
    prefix, _, rest = name.partition(".")
    layer, _, rest = rest.partition(".")
    part, _, kind = rest.partition(".")
    if prefix != "blk" or part not in _LAYER_TENSORS or kind not in ("weight", "bias"):
        raise UnsupportedModel(f"GGUF tensor {name} is not of the llama architecture")
    return f"model.layers.{layer}.{_LAYER_TENSORS[part]}.{kind}"


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _publish(partial: Path, folder: Path) -> None:
    """Rename into place once all bytes are on disk; where another process was first, its folder stays."""
    for path in (*partial.iterdir(), partial):
        path.chmod(0o755 if path.is_dir() else 0o644)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    try:
        partial.rename(folder)
    except OSError:
        if not folder.exists():
            raise
