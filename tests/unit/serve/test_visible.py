"""What shows of tokens, with a vocabulary in which a text's first word begins with a space that is none."""

from pathlib import Path

import pytest

from engine.detokenizer import Detokenizer
from engine.records import TokenLogprob
from engine.tokenizer import Tokenizer
from serve.answers.logprobs import TextLogprobs, TokenNames
from serve.visible import VisibleText, all_special
from tests.unit.engine.conftest import byte_fallback_encoder, write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("byte-fallback")
    return write_tokenizer(folder, byte_fallback_encoder(), bos_token="<s>")


def test_a_space_goes_before_what_goes_on_from_a_prompt_and_not_before_a_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the", add_special_tokens=False)
    for continues, text in ((False, "the"), (True, " the")):
        assert Detokenizer(VisibleText(tokenizer, continues=continues)).push(ids).text == text
        assert VisibleText(tokenizer, continues=continues).prompt_text(ids) == "the"


def test_special_tokens_show_where_they_are_wanted(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("the")
    assert VisibleText(tokenizer).prompt_text(ids) == "the"
    assert VisibleText(tokenizer, all_special(tokenizer)).prompt_text(ids) == "<s> the"
    assert VisibleText(tokenizer, {2}).prompt_text([*ids, 2]) == "the</s>"
    assert VisibleText(tokenizer).token_bytes(ids[0]) == b"<s>"


def test_an_echo_and_what_goes_on_from_it_are_one_text(tokenizer: Tokenizer) -> None:
    ids, more = tokenizer.encode("the é"), tokenizer.encode("the", add_special_tokens=False)
    reads = VisibleText(tokenizer, continues=True)
    logprobs = TextLogprobs(reads, TokenNames(reads), 0)
    known = [TokenLogprob(token_id, -1.0) for token_id in ids[1:]]
    prompt = reads.prompt_text(ids)
    shown = logprobs.of_prompt(prompt, ids, known)["text_offset"]
    shown += logprobs.of([TokenLogprob(token_id, -1.0) for token_id in more])["text_offset"]
    text = prompt + Detokenizer(reads).push(more).text
    assert text == tokenizer.decode([*ids, *more])
    assert shown == [0, 0, 3, 4, 5]
