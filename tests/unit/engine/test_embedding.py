"""Vectors equal transformers' hidden states, pooled: encoders by their mean, decoders by their last token."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import embedding
from engine.embedding import Embedder
from engine.errors import (
    BadWeights,
    EmbeddingFailed,
    InvalidConfig,
    InvalidParameter,
    PromptTooLong,
    UnsupportedModel,
)
from tests.unit.engine.conftest import TinyModel

TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}
TEXTS = [[5, 9, 31], [7], list(range(3, 90)), [44, 45, 46, 47, 48]]
Tiny = Callable[[str], TinyModel]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """A BERT of MiniLM's kind, biases and norms random too."""
    import transformers

    torch.manual_seed(5)
    config = transformers.BertConfig(
        vocab_size=128,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=6,
        max_position_embeddings=96,
        initializer_range=0.3,
    )
    model = transformers.BertModel(config).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() == 1:
                tensor.add_(torch.randn_like(tensor) * 0.2)
    folder = tmp_path_factory.mktemp("encoder")
    model.save_pretrained(folder)
    return TinyModel(folder, model)


def hidden(model: Any, text: list[int]) -> torch.Tensor:
    with torch.no_grad():
        states: torch.Tensor = model(torch.tensor([text])).last_hidden_state[0]
    return states


@pytest.mark.parametrize("pass_tokens", [4, 2048])
def test_encoder_vectors_are_means(
    encoder: TinyModel, monkeypatch: pytest.MonkeyPatch, pass_tokens: int
) -> None:
    monkeypatch.setattr(embedding, "PASS_TOKENS", pass_tokens)
    want = torch.stack([hidden(encoder.reference, text).mean(0) for text in TEXTS])
    got = Embedder(encoder.folder, normalize=False).embed(TEXTS)
    assert (got.dtype, tuple(got.shape)) == (torch.float32, (4, 48))
    torch.testing.assert_close(got, want, **TOLERANCE)


@pytest.mark.parametrize("name", ["qwen3", "mistral-window", "gemma3", "phi3-partial", "gpt2"])
def test_decoder_vectors_are_last_states(tiny: Tiny, name: str) -> None:
    model = tiny(name)
    want = torch.stack([hidden(model.reference.base_model, text)[-1] for text in TEXTS])
    torch.testing.assert_close(Embedder(model.folder, normalize=False).embed(TEXTS), want, **TOLERANCE)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_decoders_saved_without_a_head(tiny: Tiny, tmp_path: Path, name: str) -> None:
    tiny(name).reference.base_model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"][0].endswith("Model")
    whole = Embedder(tiny(name).folder).embed(TEXTS)
    torch.testing.assert_close(Embedder(tmp_path).embed(TEXTS), whole, **TOLERANCE)


@pytest.mark.parametrize(
    ("asked", "pick"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, lambda states: states[0]),
        ({"pooling_mode_mean_tokens": True}, lambda states: states.mean(0)),
        ({"pooling_mode": "lasttoken"}, lambda states: states[-1]),
    ],
    ids=["first", "mean", "last"],
)
def test_the_folder_may_ask_for_a_pooling(
    encoder: TinyModel, tmp_path: Path, asked: dict[str, Any], pick: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    folder = with_sentence_files(encoder, tmp_path, asked, ["Transformer", "Pooling", "Normalize"])
    want = torch.stack([pick(hidden(encoder.reference, text)) for text in TEXTS])
    torch.testing.assert_close(Embedder(folder, normalize=False).embed(TEXTS), want, **TOLERANCE)
    first = torch.stack([hidden(encoder.reference, text)[0] for text in TEXTS])
    told = Embedder(folder, normalize=False, pooling="cls").embed(TEXTS)
    torch.testing.assert_close(told, first, **TOLERANCE)


@pytest.mark.parametrize(
    ("asked", "modules", "message"),
    [
        ({"pooling_mode_max_tokens": True}, ["Pooling"], "pooling pooling_mode_max_tokens is not .*: one of"),
        (
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            [],
            "mean_tokens, pooling_mode_",
        ),
        ({"pooling_mode": "max"}, [], "pooling max is not supported; supported: one of mean, cls, lasttoken"),
        ({"pooling_mode": "mean"}, ["Transformer", "Pooling", "Dense"], "module Dense is not supported"),
    ],
)
def test_other_poolings_and_modules_are_named(
    encoder: TinyModel, tmp_path: Path, asked: dict[str, Any], modules: list[str], message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        Embedder(with_sentence_files(encoder, tmp_path, asked, modules))


def test_a_damaged_list_of_modules_is_named(encoder: TinyModel, tmp_path: Path) -> None:
    folder = with_sentence_files(encoder, tmp_path, {"pooling_mode": "mean"}, [])
    for damaged in ("[", "[3]", '{"a": 1}'):
        (folder / "modules.json").write_text(damaged)
        with pytest.raises(UnsupportedModel, match="is no list of modules"):
            Embedder(folder)


def with_sentence_files(model: TinyModel, folder: Path, pooling: dict[str, Any], modules: list[str]) -> Path:
    """A copy of the model with what sentence-transformers writes beside it."""
    shutil.copytree(model.folder, folder, dirs_exist_ok=True)
    kinds = [{"type": f"sentence_transformers.models.{module}"} for module in modules]
    (folder / "modules.json").write_text(json.dumps(kinds))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def test_vectors_have_length_one_unless_told_otherwise(encoder: TinyModel) -> None:
    plain = Embedder(encoder.folder, normalize=False).embed(TEXTS)
    torch.testing.assert_close(
        Embedder(encoder.folder).embed(TEXTS), plain / plain.norm(dim=-1, keepdim=True)
    )
    assert Embedder(encoder.folder).embed([]).shape == (0, 48)


@pytest.mark.parametrize(
    ("modules", "told", "expected"),
    [
        (["Transformer", "Pooling"], None, False),
        (["Transformer", "Pooling", "Normalize"], None, True),
        (["Transformer", "Pooling", "Normalize"], False, False),
        (["Transformer", "Pooling"], True, True),
    ],
)
def test_the_folder_says_whether_vectors_have_length_one(
    encoder: TinyModel, tmp_path: Path, modules: list[str], told: bool | None, expected: bool
) -> None:
    folder = with_sentence_files(encoder, tmp_path, {"pooling_mode": "mean"}, modules)
    lengths = Embedder(folder, normalize=told).embed(TEXTS).norm(dim=-1)
    assert torch.allclose(lengths, torch.ones(4)) == expected


def test_fewer_dimensions_are_the_first_ones_made_length_one_again(encoder: TinyModel) -> None:
    plain = Embedder(encoder.folder, normalize=False).embed(TEXTS)[:, :7]
    torch.testing.assert_close(
        Embedder(encoder.folder).embed(TEXTS, dimensions=7), plain / plain.norm(dim=-1, keepdim=True)
    )
    assert torch.equal(Embedder(encoder.folder, normalize=False).embed(TEXTS, dimensions=7), plain)
    for wrong in (0, 49):
        with pytest.raises(InvalidParameter, match=f"dimensions is {wrong}; allowed: 1 to 48"):
            Embedder(encoder.folder).embed(TEXTS, dimensions=wrong)


def test_the_longest_text_is_what_was_told_or_the_folder_says(encoder: TinyModel, tmp_path: Path) -> None:
    assert Embedder(encoder.folder).max_tokens == 96
    folder = with_sentence_files(encoder, tmp_path, {"pooling_mode": "mean"}, [])
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    assert Embedder(folder).max_tokens == 40
    assert Embedder(folder, max_tokens=90).max_tokens == 90
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 4000}')
    assert Embedder(folder).max_tokens == 96
    with pytest.raises(InvalidConfig, match="max_model_len is 97; the model allows 96"):
        Embedder(folder, max_tokens=97)


def test_a_vector_that_is_not_finite_is_refused(encoder: TinyModel) -> None:
    with pytest.raises(EmbeddingFailed, match="not finite"):
        Embedder(encoder.folder).shaped(torch.tensor([1.0, float("nan")]), None)


def test_bfloat16_stays_near_float32(encoder: TinyModel) -> None:
    near = Embedder(encoder.folder, dtype="bfloat16").embed(TEXTS)
    assert near.dtype is torch.float32
    assert (near * Embedder(encoder.folder).embed(TEXTS)).sum(-1).min() > 0.99


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ([], InvalidParameter, "at least one token"),
        ([3] * 97, PromptTooLong, "97 tokens; at most 96"),
        ([3, 128], InvalidParameter, "token id is 128; allowed: 0 to 127"),
    ],
)
def test_texts_it_cannot_take_are_refused(
    encoder: TinyModel, text: list[int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Embedder(encoder.folder).embed([[5], text])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["RobertaModel"]}, "architecture RobertaModel is not supported"),
        ({"hidden_act": "mish"}, "hidden_act mish is not supported; supported: gelu"),
        ({"position_embedding_type": "relative_key"}, "relative_key .*: absolute"),
        ({"is_decoder": True}, "is_decoder True .*: False"),
        ({"vocab_size": None}, "lacks vocab_size"),
    ],
)
def test_values_not_served_are_named(
    encoder: TinyModel, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    config = json.loads((encoder.folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(UnsupportedModel, match=message):
        Embedder(tmp_path)


def test_missing_weights_are_named(encoder: TinyModel, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((encoder.folder / "config.json").read_text())
    with pytest.raises(BadWeights, match="holds neither"):
        Embedder(tmp_path)
