"""The folders that the platform of the contract tests serves: a tiny model, and adapters for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import decoders, models, pre_tokenizers

BASE = "base"
MODEL_LEN = 512
VOCABULARY = 97
CHATML = (  # tools are named only, and called as Hermes does: the context is short
    "{% for tool in tools or [] %}{{ tool.function.name }}: <tool_call>\n{% endfor %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{% for call in message.tool_calls or [] %}"
    "<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHAPE = {
    "vocab_size": 300,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": MODEL_LEN,
    "eos_token_id": 0,
}


def write_model(folder: Path) -> Path:
    """A folder without weights: one token a byte, ids 1 to 96 readable, id 0 the end of a turn."""
    folder.mkdir(parents=True)
    readable = [*range(0x20, 0x7F), 0x0A]
    order = [*readable, *(byte for byte in range(256) if byte not in readable)]
    vocabulary = {"<|im_end|>": 0} | {_stand_in(byte): number for number, byte in enumerate(order, start=1)}
    encoder = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens(["<|im_end|>", "<|im_start|>"])
    encoder.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **SHAPE}))
    return folder


def _stand_in(byte: int) -> str:
    """The printable character by which a byte-level vocabulary writes a byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [other for other in range(256) if other not in printable]
    return chr(byte) if byte in printable else chr(256 + others.index(byte))


def write_adapter(folder: Path, seed: int, **config: Any) -> Path:
    """A PEFT folder that fits the model; its weights, and so its digest, come from the seed."""
    folder.mkdir(parents=True)
    rank = config.get("r", 4)
    fields = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": BASE,
        "r": rank,
        "lora_alpha": 8,
        "target_modules": ["q_proj"],
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(fields))
    values = np.random.default_rng(seed)
    prefix = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{prefix}.lora_A.weight": values.standard_normal((rank, 16)).astype(np.float32),
        f"{prefix}.lora_B.weight": values.standard_normal((16, rank)).astype(np.float32),
    }
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder
