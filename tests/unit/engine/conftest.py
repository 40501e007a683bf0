"""Tiny random models of every supported architecture, and tiny tokenizers of both supported kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from engine.adapter_weights import AdapterWeights
from engine.config import EngineConfig, blocks_for
from engine.records import ScheduledSeq, SlotChange
from engine.runner import Runner, build_runner
from engine.sampling import SamplingParams
from engine.tokenizer import Tokenizer
from tests.unit.engine.family_variants import CONFIGS, FAMILY_VARIANTS, MODELS

SMALL: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ORIGINAL = {"original_max_position_embeddings": 32}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"rms_norm_eps": 1e-5}),
    "llama-biased": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "head_dim": 16}),
    "llama-linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}),
    "llama-dynamic": (
        "Llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "llama-llama3": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                **ORIGINAL,
            }
        },
    ),
    "llama-yarn": (
        "Llama",
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, **ORIGINAL}},
    ),
    "llama-longrope": (
        "Llama",
        {
            "initializer_range": 0.2,  # its sharper scores would double what bfloat16 loses at 0.3
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "factor": 2.0,
                "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [1.0, 1.5, 3.0, 6.0],
                **ORIGINAL,
            },
        },
    ),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 21}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 21, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
}
"""Of the Llama family."""

MOST_GROUPS = 3
"""KV groups of a tiny model at most, one a layer: tables made by hand are long enough for them."""


@dataclass
class TinyModel:
    """One saved model and transformers' own instance of it."""

    folder: Path
    reference: Any

    def runner(self, **settings: Any) -> Runner:
        defaults: dict[str, Any] = {"dtype": "float32", "num_blocks": 192, "backend": "reference"}
        return build_runner(EngineConfig(model=self.folder, **{**defaults, **settings}))

    def logits(self, ids: list[int]) -> torch.Tensor:
        """Logits [len(ids), vocab] of one sequence in one piece."""
        with torch.no_grad():
            return self.reference(torch.tensor([ids])).logits[0]


def adapt(runner: Runner, slot: int, weights: AdapterWeights) -> int:
    """Let a slot of `runner` hold an adapter; returns its bytes."""
    prepared = runner.prepare_adapter(weights)
    runner.change_slots([SlotChange(slot, prepared)])
    return prepared.nbytes


@dataclass
class Row:
    """A sequence driven by hand: owns a block table and says what a step should compute."""

    seq_id: int
    token_ids: list[int]
    block_table: list[int]
    adapter_slot: int = 0
    sampling: SamplingParams = field(default_factory=lambda: SamplingParams(max_tokens=8, temperature=0.0))
    prompt_len: int = -1

    def span(self, start: int, count: int, samples: bool = True, **changes: Any) -> ScheduledSeq:
        return ScheduledSeq(
            seq_id=self.seq_id,
            token_ids=self.token_ids,
            prompt_len=self.prompt_len if self.prompt_len >= 0 else len(self.token_ids),
            start=start,
            count=count,
            block_table=self.block_table,
            adapter_slot=self.adapter_slot,
            samples=samples,
            sampling=self.sampling,
            seed=changes.pop("seed", 0),
            **changes,
        )


def save_tiny(name: str, root: Path, **changes: Any) -> TinyModel:
    """Make the variant `name` under `root` with a seed of its own, biases and norms random too."""
    import transformers  # slow to import, and most tests of this folder do without

    prefix, extra = {**VARIANTS, **FAMILY_VARIANTS}[name]
    config = getattr(transformers, CONFIGS.get(prefix, f"{prefix}Config"))(**{**SMALL, **extra, **changes})
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, MODELS.get(prefix, f"{prefix}ForCausalLM"))(config).eval()
    with torch.no_grad():
        for key, tensor in model.named_parameters():
            if key.endswith("bias") or "norm" in key or ".ln_" in key:
                tensor.add_(torch.randn_like(tensor) * 0.2)
    folder = root / name
    model.save_pretrained(folder)
    return TinyModel(folder, model)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TinyModel]:
    """tiny("qwen3") -> the model, made once a session."""
    root, made = tmp_path_factory.mktemp("tiny"), dict[str, TinyModel]()

    def get(name: str) -> TinyModel:
        if name not in made:
            made[name] = save_tiny(name, root)
        return made[name]

    return get


@pytest.fixture
def blocks() -> Callable[[int], list[int]]:
    """blocks(n) -> a table for n tokens, ids never handed out before and in no helpful order."""
    free = [(7 * i + 3) % 192 for i in range(192)]

    def take(num_tokens: int) -> list[int]:
        return [free.pop() for _ in range(blocks_for(num_tokens) * MOST_GROUPS)]

    return take


CORPUS = [
    "the quick brown fox jumps over the lazy dog, then the dog sleeps and the fox runs away",
    "stop here or stop there: END of the text. STOP",
    "naïve café, größer, 你好世界, こんにちは, 👩‍👩‍👧 🙂 🇩🇪 🙂",
]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path, encoder: tokenizers.Tokenizer, **config: Any) -> Tokenizer:
    """A folder that holds just enough for a Tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    shape = {key: value for key, value in SMALL.items() if isinstance(value, int)}
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **shape}))
    return Tokenizer(folder)


def byte_level_encoder() -> tokenizers.Tokenizer:
    """Byte-level BPE with ChatML marks, a plain added token and merges of half characters."""
    encoder = tokenizers.Tokenizer(models.BPE())
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    encoder.train_from_iterator(CORPUS, trainer)
    encoder.add_tokens([tokenizers.AddedToken("<tool call>", special=False)])
    return encoder


def byte_fallback_encoder() -> tokenizers.Tokenizer:
    """SentencePiece-like BPE: "▁" for a space, bytes for what has no piece, BOS in front."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    spelt = set("▁" + "".join(CORPUS).replace(" ", "")) - set("👩👧🙂🇩🇪你好世界")
    pieces += [*sorted(spelt), "▁t", "he", "▁the"]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    encoder = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True))
    encoder.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    encoder.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    encoder.add_special_tokens(["<unk>", "<s>", "</s>"])
    encoder.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return encoder


@pytest.fixture(scope="session")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("byte-level")
    marks = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>", "special": True}}
    return write_tokenizer(folder, byte_level_encoder(), chat_template=CHATML, **marks)


@pytest.fixture(scope="session")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return write_tokenizer(tmp_path_factory.mktemp("byte-fallback"), byte_fallback_encoder(), bos_token="<s>")
