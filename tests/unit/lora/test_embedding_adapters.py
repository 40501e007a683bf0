"""Adapters beside models that embed, encoders and decoders: vectors are PEFT's own, alone and with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel, PreTrainedModel, Qwen3Config, Qwen3Model

from engine.base_tensors import BaseTensors
from engine.embedding import Embedder
from engine.embeddingspec import read_text_model
from engine.errors import AdapterTooLarge
from engine.text_adapter import TextAdapter
from lora.errors import UnmatchedTensors, UnsupportedFeature
from lora.format import check_against, read_adapter
from lora.weights import load_weights
from tests.unit.lora.peft_models import CHECK, quiet, train

TEXTS = [[5, 9, 31], [7], list(range(3, 60)), [44, 45, 46, 47, 48], [61, 62, 9, 9]]
TOLERANCE = {"rtol": 3e-4, "atol": 3e-4}
ACTIVATED = {"alora_invocation_tokens": [44, 45]}
SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
ENCODER: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": ["query", "value"]},
    "whole": {"target_modules": ["query", "key", "value", "dense"], "exclude_modules": ["pooler.dense"]},
    "dora": {"target_modules": ["query", "output.dense"], "use_dora": True},
    "biases": {"target_modules": ["key", "intermediate.dense"], "bias": "lora_only"},
    "table": {"target_modules": ["word_embeddings", "value"]},
    "norms": {"target_modules": ["value"], "modules_to_save": ["LayerNorm"]},
    "tokens": {"target_modules": ["value"], "trainable_token_indices": {"word_embeddings": [5, 9, 44]}},
}
DECODER: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": ["q_proj", "v_proj"]},
    "whole": {"target_modules": "all-linear", "use_rslora": True},
    "dora": {"target_modules": ["o_proj", "down_proj"], "use_dora": True},
    "norms": {"target_modules": ["k_proj"], "modules_to_save": ["layernorm"]},
}
CASES = [("encoder", name) for name in ENCODER] + [("decoder", name) for name in DECODER]


@dataclass(frozen=True)
class Base:
    """A model's folder, and what its adapters are: by name the folder, and PEFT's states of a text."""

    folder: Path
    adapters: dict[str, Path]
    models: dict[str, Any]

    def vector(self, name: str, text: Sequence[int]) -> torch.Tensor:
        """By PEFT: the mean of an encoder, the last token of a decoder."""
        with torch.no_grad(), quiet():
            states = self.models[name](input_ids=torch.tensor([list(text)])).last_hidden_state[0]
        return states.mean(0) if "encoder" in str(self.folder) else states[-1]

    def prepared(self, name: str, embedder: Embedder) -> TextAdapter:
        return embedder.prepare_adapter(_weights(self.folder, self.adapters[name]))


def _weights(model: Path, folder: Path, **check: Any) -> Any:
    targets, adapter = read_text_model(model).adapter_targets, read_adapter(folder)
    report = check_against(adapter, targets, **{**CHECK, **check})
    return load_weights(adapter, report, targets, BaseTensors(model), torch.float32)


def _model(kind: str) -> PreTrainedModel:
    torch.manual_seed(4)
    model: Any = (
        BertModel(BertConfig(**SHAPE))
        if kind == "encoder"
        else Qwen3Model(Qwen3Config(**SHAPE, num_key_value_heads=2, head_dim=8))
    )
    for weight in model.parameters():
        weight.data = torch.randn_like(weight) * 0.3 + (weight.dim() == 1)
    found: PreTrainedModel = model.eval()
    return found


def _adapter(base: Path, folder: Path, fields: dict[str, Any]) -> Any:
    """Drawn values in all it trains, saved by PEFT."""
    with quiet(), torch.no_grad():
        model = AutoModel.from_pretrained(base, dtype=torch.float32)
        model.name_or_path = "tiny"
        settings = {"r": 4, "lora_alpha": 6, "init_lora_weights": False, **fields}
        wrapped = peft.get_peft_model(model, peft.LoraConfig(**settings)).eval()
        torch.manual_seed(len(fields) + 7)
        for weight in wrapped.parameters():
            if weight.requires_grad:
                weight.add_(0.1 * torch.randn_like(weight))
        wrapped.save_pretrained(folder, save_embedding_layers=False)
    return wrapped


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Base]:
    made = {}
    for kind, configs in (("encoder", ENCODER), ("decoder", DECODER)):
        root = tmp_path_factory.mktemp(kind)
        _model(kind).save_pretrained(root / "base")
        models = {name: _adapter(root / "base", root / name, fields) for name, fields in configs.items()}
        made[kind] = Base(root / "base", {name: root / name for name in configs}, models)
    return made


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_vectors_are_peft_s(bases: dict[str, Base], kind: str, name: str) -> None:
    base = bases[kind]
    embedder = Embedder(base.folder, normalize=False)
    adapter = base.prepared(name, embedder)
    got = embedder.embed(TEXTS, adapter=adapter)
    want = torch.stack([base.vector(name, text) for text in TEXTS])
    torch.testing.assert_close(got, want, **TOLERANCE)
    assert not torch.allclose(got, embedder.embed(TEXTS), **TOLERANCE)


@pytest.mark.parametrize(("kind", "name"), [("encoder", None), ("decoder", None), *CASES])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_vector_is_bitwise_the_same_alone_and_in_company(
    bases: dict[str, Base], kind: str, name: str | None, threads: int
) -> None:
    base, before = bases[kind], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        embedder = Embedder(base.folder)
        adapter = None if name is None else base.prepared(name, embedder)
        together = embedder.embed(TEXTS, adapter=adapter)
        for text, vector in zip(TEXTS, together, strict=True):
            assert torch.equal(embedder.embed([text], adapter=adapter)[0], vector)
        assert torch.equal(embedder.embed(TEXTS[::-1], adapter=adapter), together.flip(0))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "fields",
    [{"target_modules": ["v_proj", "lm_head"]}, {"target_modules": ["v_proj"], **ACTIVATED}],
    ids=["with-head", "activated"],
)
def test_an_adapter_of_a_whole_language_model_fits_its_decoder(tmp_path: Path, fields: Any) -> None:
    trained = train(tmp_path, "llama", **fields)
    embedder = Embedder(trained.model, normalize=False)
    adapter = embedder.prepare_adapter(_weights(trained.model, trained.folder))
    got = embedder.embed(TEXTS, adapter=adapter)
    with torch.no_grad(), quiet():
        asked = [{"input_ids": torch.tensor([text]), "output_hidden_states": True} for text in TEXTS]
        states = [trained.peft(**each).hidden_states[-1][0, -1] for each in asked]
    torch.testing.assert_close(got, torch.stack(states), **TOLERANCE)
    for text, vector in zip(TEXTS, got, strict=True):
        assert torch.equal(embedder.embed([text], adapter=adapter)[0], vector)
    held = [44 in text for text in TEXTS] if "alora_invocation_tokens" in fields else [True] * len(TEXTS)
    bare = embedder.embed(TEXTS)
    assert held == [not torch.equal(*pair) for pair in zip(got, bare, strict=True)]


def test_what_an_encoder_does_not_have_is_refused_by_name(bases: dict[str, Base], tmp_path: Path) -> None:
    base = bases["encoder"].folder
    _adapter(base, tmp_path / "pooler", {"target_modules": ["query", "pooler.dense"]})
    with pytest.raises(UnmatchedTensors, match=r"pooler\.dense"):
        _weights(base, tmp_path / "pooler")
    tokens = {"target_modules": ["query"], "trainable_token_indices": {"position_embeddings": [1]}}
    _adapter(base, tmp_path / "places", tokens)
    with pytest.raises((UnsupportedFeature, UnmatchedTensors), match="position_embeddings"):
        _weights(base, tmp_path / "places")


def test_a_rank_above_the_bound_is_refused(bases: dict[str, Base]) -> None:
    embedder = Embedder(bases["encoder"].folder, max_rank=2)
    with pytest.raises(AdapterTooLarge, match="rank 4; at most 2"):
        bases["encoder"].prepared("plain", embedder)
