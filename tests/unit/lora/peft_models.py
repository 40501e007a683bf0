"""Adapters that PEFT makes and computes with, on tiny random models, to compare ours with."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from engine.base_tensors import BaseTensors
from engine.modelspec import read_spec
from engine.records import SamplingParams, ScheduledSeq
from engine.reference import ReferenceModel
from lora.format import MatchReport, check_against, read_adapter
from lora.weights import load_weights

PROMPTS = ((5, 3, 61, 7), (1, 40, 2), (3, 3, 9, 22, 8))
_LLAMA: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
CHECK: dict[str, Any] = {"base_digest": "sha256:" + "b" * 64, "base_names": ["tiny"], "max_rank": 64}


def make_model(family: str, **fields: Any) -> PreTrainedModel:
    """A random model: "llama" (head of its own), "tied" (Llama, tied), "qwen2" (biases, tied), "gpt2"."""
    torch.manual_seed(1)
    if family == "gpt2":
        size = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        return _drawn(GPT2LMHeadModel(GPT2Config(**{**size, **fields})))
    if family == "qwen2":
        return _drawn(Qwen2ForCausalLM(Qwen2Config(**{**_LLAMA, "tie_word_embeddings": True, **fields})))
    tied = family == "tied"
    return _drawn(LlamaForCausalLM(LlamaConfig(**{**_LLAMA, "tie_word_embeddings": tied, **fields})))


def _drawn(model: PreTrainedModel) -> PreTrainedModel:
    """Wide enough values, biases and norms included, for every part to show."""
    for name, weight in model.named_parameters():
        weight.data = torch.randn_like(weight) * (0.3 if weight.dim() == 2 else 0.1)
        if name.endswith("weight") and weight.dim() == 1:
            weight.data += 1.0
    model.tie_weights()
    return model.eval()


@dataclass(frozen=True)
class Trained:
    """A base model's folder, an adapter's folder, and the model PEFT makes of the two."""

    model: Path
    folder: Path
    peft: PeftModel

    def logits(self, prompt: Sequence[int]) -> Tensor:
        """PEFT's own, of the last position."""
        with torch.no_grad():
            return self.peft(torch.tensor([prompt])).logits[0, -1].float()


def train(folder: Path, family: str, *, save_embedding: str | bool = "auto", **config: Any) -> Trained:
    """An adapter with drawn values in all it trains, saved, and loaded into a fresh base by PEFT."""
    base, saved = folder / "base", folder / "adapter"
    make_model(family).save_pretrained(base)
    defaults = {"r": 4, "lora_alpha": 6, "task_type": "CAUSAL_LM", "init_lora_weights": False}
    with quiet():
        model = _load(base)
        model.name_or_path = "tiny"
        peft = get_peft_model(model, LoraConfig(**{**defaults, **config}))
        torch.manual_seed(2)
        for name, weight in peft.named_parameters():
            if weight.requires_grad and "lora_" not in name:
                weight.data = weight.data + 0.1 * torch.randn_like(weight)
            elif weight.requires_grad:
                weight.data = 0.3 * torch.randn_like(weight) + ("magnitude" in name)
        peft.save_pretrained(saved, save_embedding_layers=save_embedding)
        return Trained(base, saved, PeftModel.from_pretrained(_load(base), saved).eval())


def _load(folder: Path) -> PreTrainedModel:
    kinds = {"gpt2": GPT2LMHeadModel, "qwen2": Qwen2ForCausalLM, "llama": LlamaForCausalLM}
    return kinds[read_spec(folder).family].from_pretrained(folder, dtype=torch.float32)


@contextmanager
def quiet() -> Iterator[None]:
    """PEFT and transformers warn of tied weights and deprecated names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fit(model: Path, folder: Path, **overrides: Any) -> MatchReport:
    """How the adapter in `folder` fits the model."""
    return check_against(read_adapter(folder), read_spec(model).adapter_targets, **{**CHECK, **overrides})


def our_logits(model: Path, folder: Path, prompts: Sequence[Sequence[int]]) -> list[Tensor]:
    """Of the last positions, by the reference backend with the adapter's weights as they are loaded here."""
    spec = read_spec(model)
    targets, adapter = spec.adapter_targets, read_adapter(folder)
    weights = load_weights(
        adapter, check_against(adapter, targets, **CHECK), targets, BaseTensors(model), torch.float32
    )
    engine = ReferenceModel(model, spec, torch.float32, num_blocks=4, max_rank=64)
    engine.bind_adapter(1, engine.prepare_adapter(weights))
    return [engine.scores([_whole(prompt)]).logits[0] for prompt in prompts]


def _whole(prompt: Sequence[int]) -> ScheduledSeq:
    return ScheduledSeq(
        seq_id=1,
        token_ids=list(prompt),
        prompt_len=len(prompt),
        start=0,
        count=len(prompt),
        block_table=[0],
        adapter_slot=1,
        samples=True,
        sampling=SamplingParams(max_tokens=1, temperature=0.0),
        seed=0,
    )
