"""Texts to vectors from a folder as sentence-transformers publishes it: WordPiece, encoder, pooling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine.embedding import Embedder
from engine.tokenizer import Tokenizer

WORDS = ["the", "dog", "run", "##s", "##ning", "away", "cafe", "!", "'", "你", "12", "##3", "un", "##k"]
VOCAB = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
TEXTS = ["The dog runs away!", "Café 你 running", "the 123 unknown dogs' zebra", "dog"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with an uncased WordPiece tokenizer and the files that sentence-transformers adds."""
    made = tmp_path_factory.mktemp("minilm")
    torch.manual_seed(3)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(
        vocab_size=len(VOCAB), max_position_embeddings=64, initializer_range=0.3, **shape
    )
    transformers.BertModel(config).save_pretrained(made)
    transformers.BertTokenizer(vocab=VOCAB, do_lower_case=True).save_pretrained(made)
    kinds = [
        {"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Normalize")
    ]
    (made / "modules.json").write_text(json.dumps(kinds))
    (made / "1_Pooling").mkdir()
    (made / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return made


@pytest.fixture(scope="module")
def theirs(folder: Path) -> tuple[Any, Any]:
    """transformers' tokenizer and model of the folder."""
    return transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModel.from_pretrained(folder)


def test_ids_equal_transformers(folder: Path, theirs: tuple[Any, Any]) -> None:
    ours = Tokenizer(folder)
    for text in (*TEXTS, "", "  THE   dog\n"):
        assert ours.encode(text) == theirs[0](text)["input_ids"]
    assert ours.encode("dog")[0] == VOCAB["[CLS]"]
    assert ours.eos_ids == frozenset()


def test_pieces_read_as_words(folder: Path) -> None:
    ours = Tokenizer(folder)
    assert ours.decode(ours.encode("The dog running unk!")) == "the dog running unk !"
    assert ours.token_bytes(VOCAB["##ning"]) == b"ning"


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_point_where_transformers_do(
    folder: Path, theirs: tuple[Any, Any], tmp_path: Path, pooling: str
) -> None:
    asked = {"pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_cls_token": pooling == "cls"}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(asked))
    ours = Tokenizer(folder)
    got = Embedder(folder).embed([ours.encode(text) for text in TEXTS])
    batch = theirs[0](TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = theirs[1](**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    want = (states * mask).sum(1) / mask.sum(1) if pooling == "mean" else states[:, 0]
    assert torch.nn.functional.cosine_similarity(got, want).min() > 1 - 1e-5
    torch.testing.assert_close(got.norm(dim=-1), torch.ones(len(TEXTS)))
