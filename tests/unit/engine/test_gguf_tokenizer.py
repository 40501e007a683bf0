"""Vocabularies of GGUF files cut text as the models' own tokenizers do; transformers' classes tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import AddedToken

from engine.errors import UnsupportedModel
from engine.gguf_splits import SPLITS
from engine.importer import import_gguf
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import byte_fallback_encoder, byte_level_encoder
from tests.unit.engine.gguf_files import add_bpe, add_sentencepiece, save_model, write_model

TEXTS = [
    "the 12345 dogs  run\n\n away",
    "I'LL stop, DON'T you? it's 3.14",
    "naïve café e\u0301 größer\r\n\t你好世界 👩‍👩‍👧 🙂",
    "  leading and trailing  ",
    "camelCaseWords HTTPServer/path\n",
    "",
]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def imported(folder: Path, name: str = "Llama", **changes: Any) -> Tokenizer:
    """Of a file with that vocabulary."""
    save_model(name, folder / "source")
    return Tokenizer(
        import_gguf(write_model(folder / "m.gguf", name, folder / "source", **changes), folder / "out")
    )


def vocabulary() -> dict[str, Any]:
    """What transformers' byte-level classes are made of."""
    raw = json.loads(byte_level_encoder().to_str())["model"]
    return {"vocab": raw["vocab"], "merges": [tuple(merge) for merge in raw["merges"]]}


@pytest.mark.parametrize(("pre", "kind"), [("gpt-2", "GPT2Tokenizer"), ("qwen2", "Qwen2Tokenizer")])
def test_splits_are_those_of_transformers_classes(tmp_path: Path, pre: str, kind: str) -> None:
    ours, theirs = imported(tmp_path, pre=pre), getattr(transformers, kind)(**vocabulary())
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"]


PIECES = {
    "gpt-2": ["the", " 12345", " dogs", "'s", "DON", "'", "T"],
    "smollm": ["the", " ", "1", "2", "3", "4", "5", " dogs", "'s", "DON", "'", "T"],
    "llama-bpe": ["the", " ", "123", "45", " dogs", "'s", "DON", "'T"],
    "qwen2": ["the", " ", "1", "2", "3", "4", "5", " dogs", "'s", "DON", "'T"],
    "deepseek-r1-qwen": ["the", " ", "1", "2", "3", "4", "5", " dogs", "'s", "DON", "'T"],
    "tekken": ["the", " ", "1", "2", "3", "4", "5", " dogs", "'s", "DON", "'T"],
    "dbrx": ["the", " ", "123", "45", " dogs", "'s", "DON", "'T"],
    "gpt-4o": ["the", " ", "123", "45", " dogs's", "DON'T"],
}


@pytest.mark.parametrize("pre", PIECES)
def test_text_is_cut_before_the_merges(tmp_path: Path, pre: str) -> None:
    imported(tmp_path, pre=pre)
    import tokenizers

    cut = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json")).pre_tokenizer
    found = [piece.replace("Ġ", " ") for piece, _ in cut.pre_tokenize_str("the 12345 dogs'sDON'T")]
    assert found == PIECES[pre]


def test_every_split_is_tested() -> None:
    assert set(SPLITS) == {*PIECES, "llama3", "llama-v3"}


@pytest.mark.parametrize(
    ("pre", "add_bos", "marked"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("qwen2", None, False), ("qwen2", True, True)],
)
def test_bos_goes_in_front_where_the_file_or_its_kind_asks(
    tmp_path: Path, pre: str, add_bos: bool | None, marked: bool
) -> None:
    def tokens(writer: Any, changes: dict[str, Any]) -> None:
        add_bpe(writer, byte_level_encoder(), pre)
        if add_bos is not None:
            writer.add_add_bos_token(add_bos)

    assert (imported(tmp_path, tokens=tokens).encode("the dog")[0] == 1) == marked


def test_eos_behind_the_text_and_marks_that_end_a_turn(tmp_path: Path) -> None:
    def tokens(writer: Any, changes: dict[str, Any]) -> None:
        add_bpe(writer, byte_level_encoder(), "qwen2")
        writer.add_add_eos_token(True)

    tokenizer = imported(tmp_path, tokens=tokens)
    assert tokenizer.encode("the dog")[-1] == 2
    assert tokenizer.eos_ids == {2, 0}  # <|endoftext|> beside the file's own end


def test_names_that_fill_the_vocabulary_are_no_tokens(tmp_path: Path) -> None:
    def tokens(writer: Any, changes: dict[str, Any]) -> None:
        encoder = byte_level_encoder()
        size = encoder.get_vocab_size()
        vocab = sorted(encoder.get_vocab().items(), key=lambda item: item[1])
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list([*(token for token, _ in vocab), f"[PAD{size}]"])
        writer.add_token_types([NORMAL] * size + [5])
        writer.add_token_merges([" ".join(merge) for merge in vocabulary()["merges"]])

    assert imported(tmp_path, tokens=tokens).vocab_size == byte_level_encoder().get_vocab_size()


@pytest.mark.parametrize("name", ["Llama", "Qwen2"])
def test_a_file_without_the_kind_of_split_is_refused(tmp_path: Path, name: str) -> None:
    def tokens(writer: Any, changes: dict[str, Any]) -> None:
        add_bpe(writer, byte_level_encoder(), pre=None)

    with pytest.raises(UnsupportedModel, match=r"pre-tokenizer \(none\) is not supported; supported: gpt-2"):
        imported(tmp_path, name, tokens=tokens)


def pieces(encoder_vocab: dict[str, int]) -> list[tuple[str, float, int]]:
    """Token, score and kind: scores fall from token to token, as SentencePiece's BPE has them."""
    kinds = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    ordered = sorted(encoder_vocab.items(), key=lambda item: item[1])
    return [
        (token, -float(number), kinds.get(token, BYTE if token.startswith("<0x") else NORMAL))
        for token, number in ordered
    ]


def test_sentencepiece_of_llama_equals_its_source(tmp_path: Path) -> None:
    original = byte_fallback_encoder()
    tokenizer = imported(tmp_path, tokens=add_sentencepiece, pieces=pieces(original.get_vocab()))
    for text in ("the dog", " the  the", "naïve 你好 🙂\n", "<s>the</s>x"):
        assert tokenizer.encode(text) == original.encode(text).ids
        if "<s>" not in text:
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sentencepiece_of_gemma_equals_transformers(tmp_path: Path) -> None:
    """No space in front, merges by the order of the tokens, runs of spaces that the file keeps as spaces."""
    base = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁▁", "▁▁▁", "<start_of_turn>", "<end_of_turn>"]
    tokens = [*base, *(f"<0x{byte:02X}>" for byte in range(256)), *"thedogruns▁", "th", "he", "▁th", "the"]
    tokens = list(dict.fromkeys(tokens))
    vocab = {token: number for number, token in enumerate(tokens)}
    kinds = {
        **dict.fromkeys(base, CONTROL),
        **dict.fromkeys(("▁▁", "▁▁▁"), USER_DEFINED),
        "<unk>": UNKNOWN,
    }
    listed = [
        (token.replace("▁", " ") if token in ("▁▁", "▁▁▁") else token, -1000.0 * (number % 7),
         kinds.get(token, BYTE if token.startswith("<0x") else NORMAL))
        for token, number in vocab.items()
    ]  # fmt: skip

    def add(writer: Any, changes: dict[str, Any]) -> None:
        add_sentencepiece(writer, {"pieces": listed, "add_space_prefix": False})
        writer.add_bos_token_id(vocab["<bos>"])

    save_model("Gemma2", tmp_path / "source", head_dim=16, query_pre_attn_scalar=16, sliding_window=9)
    keys = {"attention.sliding_window": 9}
    file = write_model(tmp_path / "m.gguf", "Gemma2", tmp_path / "source", keys=keys, tokens=add)
    ours = Tokenizer(import_gguf(file, tmp_path / "out"))
    merges = transformers.tokenization_utils_base.generate_merges(vocab)
    theirs = transformers.GemmaTokenizer(vocab=vocab, merges=merges)
    theirs.add_tokens([AddedToken(run, normalized=True) for run in ("▁▁", "▁▁▁")])
    theirs.add_special_tokens({"additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"]})
    for text in ("the dog  runs   the", " the", "<start_of_turn>the\n<end_of_turn>", "你", "thhe"):
        assert ours.encode(text) == [vocab["<bos>"], *theirs(text, add_special_tokens=False)["input_ids"]]
        if "<" not in text:
            assert ours.decode(ours.encode(text)) == text
    assert vocab["<end_of_turn>"] in ours.eos_ids


def test_a_vocabulary_without_its_bytes_is_refused(tmp_path: Path) -> None:
    few = pieces({"<unk>": 0, "<s>": 1, "</s>": 2, "<0x00>": 3, "a": 4})
    with pytest.raises(UnsupportedModel, match="has 1 byte tokens; 256 needed"):
        imported(tmp_path, tokens=add_sentencepiece, pieces=few)


def test_other_kinds_of_vocabulary_are_named(tmp_path: Path) -> None:
    def tokens(writer: Any, changes: dict[str, Any]) -> None:
        writer.add_tokenizer_model("t5")

    with pytest.raises(
        UnsupportedModel, match=r"tokenizer t5 is not supported; supported: gpt2, llama \(Sent"
    ):
        imported(tmp_path, tokens=tokens)
