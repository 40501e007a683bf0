"""Encoding, decoding and chat templates, compared with transformers where it has an answer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers

from engine.chat_template import MAX_TEXT
from engine.confined_template import TemplateProcesses
from engine.errors import BadTemplateInput, InvalidParameter, NoChatTemplate, UnsupportedModel
from engine.tokenizer import Tokenizer
from tests.unit.engine.conftest import CHATML, byte_fallback_encoder, byte_level_encoder, write_tokenizer

TALK = [
    {"role": "system", "content": "the dog answers"},
    {"role": "user", "content": "naïve 🙂?"},
]
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(
    "text", ["", " the dog", "naïve café 👩‍👩‍👧 你好\n\n", "<tool call> the<|im_end|>", "𝄞 1234"]
)
def test_round_trip(byte_level: Tokenizer, byte_fallback: Tokenizer, text: str) -> None:
    plain = text.replace("<|im_end|>", "")
    assert byte_level.decode(byte_level.encode(text)) == plain
    assert byte_fallback.decode(byte_fallback.encode(plain)) == plain


def test_ids_equal_transformers(byte_level: Tokenizer, byte_fallback: Tokenizer) -> None:
    for tokenizer in (byte_level, byte_fallback):
        theirs = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(tokenizer._folder / "tokenizer.json")
        )
        for text in ("the dog", " 🙂 the", "a\nb"):
            assert tokenizer.encode(text) == theirs(text)["input_ids"]


def test_token_bytes(byte_level: Tokenizer, byte_fallback: Tokenizer) -> None:
    smile = byte_level.encode("🙂")
    assert b"".join(map(byte_level.token_bytes, smile)) == "🙂".encode()
    assert byte_level.token_bytes(1) == b"<|im_start|>"
    assert byte_level.text_bytes(1) == b""
    assert byte_level.token_bytes(byte_level.vocab_size + 7) == b""
    assert byte_fallback.token_bytes(3 + 0x0A) == b"\n"
    assert byte_fallback.token_bytes(byte_fallback.encode("the")[1]) == b" the"


def test_end_tokens_come_from_the_generation_config(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, byte_level_encoder())
    assert Tokenizer(tmp_path).eos_ids == {2}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    assert Tokenizer(tmp_path).eos_ids == {0, 2}


def test_lone_surrogate_is_refused(byte_level: Tokenizer) -> None:
    with pytest.raises(InvalidParameter, match="surrogates"):
        byte_level.encode("a\ud800b")
    with pytest.raises(InvalidParameter, match="surrogates"):
        byte_level.encode(
            byte_level.render_chat([{"role": "user", "content": "\udfff"}]), add_special_tokens=False
        )


@pytest.mark.parametrize("missing", ["tokenizer.json", "config.json"])
def test_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    write_tokenizer(tmp_path, byte_level_encoder())
    (tmp_path / missing).unlink()
    with pytest.raises(UnsupportedModel, match=f"{missing} is missing"):
        Tokenizer(tmp_path)


def test_unknown_decoder_is_named(tmp_path: Path) -> None:
    raw = json.loads(byte_level_encoder().to_str())
    raw["decoder"] = {"type": "CTC", "pad_token": "-", "word_delimiter_token": "|", "cleanup": True}
    write_tokenizer(tmp_path, byte_level_encoder())
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    with pytest.raises(UnsupportedModel, match="CTC is not supported; supported: ByteLevel"):
        Tokenizer(tmp_path)


def templated(folder: Path, template: Any, **config: Any) -> Tokenizer:
    return write_tokenizer(
        folder, byte_level_encoder(), bos_token="<|im_start|>", chat_template=template, **config
    )


EACH = "{% for m in messages %}"
TEMPLATES = {
    "chatml": CHATML,
    "loop controls": EACH + "{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
    "tojson": EACH + "{{ m | tojson }}{{ m | tojson(indent=2) }}{% endfor %}",
    "tools": "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[-1].content }}",
    "namespace": "{% set ns = namespace(n=0) %}" + EACH + "{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "generation": EACH + "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
    "blocks": EACH + "\n    {{- m.role }}\n    {% if true %}\n  x\n    {% endif %}\n{% endfor %}",
    "variables": "{{ bos_token }}{{ flavour }}{{ add_generation_prompt }}{{ missing }}{{ documents }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_rendering_equals_transformers(tmp_path: Path, name: str) -> None:
    ours = templated(tmp_path, TEMPLATES[name])
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"),
        bos_token="<|im_start|>",
        chat_template=TEMPLATES[name],
    )
    for prompt in (True, False):
        want = theirs.apply_chat_template(
            TALK, tools=TOOLS, add_generation_prompt=prompt, tokenize=False, flavour="sweet"
        )
        assert ours.render_chat(TALK, TOOLS, prompt, variables={"flavour": "sweet"}) == want


OPEN_TEMPLATES = {
    "as it is": "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}",
    "stripped": "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>\n{% endfor %}",
}


@pytest.mark.parametrize("name", OPEN_TEMPLATES)
@pytest.mark.parametrize("content", ["The answer is", "The answer is ", " \n", "é\n<user>"])
def test_an_open_last_message_equals_transformers(tmp_path: Path, name: str, content: str) -> None:
    ours = templated(tmp_path, OPEN_TEMPLATES[name])
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), chat_template=OPEN_TEMPLATES[name]
    )
    talk = [*TALK, {"role": "assistant", "content": content}]
    want = theirs.apply_chat_template(talk, tokenize=False, continue_final_message=True)
    assert ours.render_chat(talk, None, False, continue_final_message=True) == want


def test_a_template_that_hides_the_last_message_cannot_leave_it_open(tmp_path: Path) -> None:
    with pytest.raises(BadTemplateInput, match="does not show the text of the last message"):
        templated(tmp_path, "{{ messages[0].role }}").render_chat(
            TALK, None, False, continue_final_message=True
        )


def test_a_template_that_writes_without_end_is_left(tmp_path: Path) -> None:
    loop = "{% for _ in range(99999) %}" * 3 + "{{ messages[0].content }}" + "{% endfor %}" * 3
    with pytest.raises(BadTemplateInput, match=f"more than {MAX_TEXT} characters"):
        templated(tmp_path, loop).render_chat([{"role": "user", "content": "x" * 10_000}])


def test_special_tokens_are_known_by_their_spelling(byte_level: Tokenizer) -> None:
    special = [id_ for id_ in range(byte_level.vocab_size) if not byte_level.text_bytes(id_)]
    assert special
    assert all(byte_level.special_id(byte_level.spelling(id_)) == id_ for id_ in special)
    assert byte_level.special_id("a") is None
    assert byte_level.special_id("no token at all") is None


def test_chat_has_one_bos(tmp_path: Path) -> None:
    """The template writes BOS and the tokenizer would put one in front of plain text as well."""
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer = write_tokenizer(tmp_path, byte_fallback_encoder(), bos_token="<s>", chat_template=template)
    assert tokenizer.encode("the").count(1) == 1
    ids = tokenizer.encode(tokenizer.render_chat(TALK), add_special_tokens=False)
    assert ids[0] == 1
    assert ids.count(1) == 1


def test_file_beside_the_config_wins(tmp_path: Path) -> None:
    templated(tmp_path, "from the config")
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert Tokenizer(tmp_path).render_chat(TALK) == "from the file"


def test_named_templates(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]
    tokenizer = templated(tmp_path, named)
    assert tokenizer.render_chat(TALK) == "plain"
    assert tokenizer.render_chat(TALK, TOOLS) == "with tools"


def test_missing_template_is_an_error(byte_fallback: Tokenizer) -> None:
    with pytest.raises(NoChatTemplate, match="carries no chat template"):
        byte_fallback.render_chat(TALK)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].content + 3 }}", "can only concatenate str"),
        ("{{ messages[9].content.strip() }}", "has no element 9"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_refusal_carries_the_template_s_reason(tmp_path: Path, template: str, reason: str) -> None:
    with pytest.raises(BadTemplateInput, match=reason):
        templated(tmp_path, template).render_chat(TALK)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% for _ in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_template_cannot_leave_its_sandbox(tmp_path: Path, template: str) -> None:
    with pytest.raises(BadTemplateInput):
        templated(tmp_path, template).render_chat(TALK)


BROKEN = {
    "no end": "{% for m in messages %}",
    "unknown filter": "{{ messages | nosuch }}",
    "too deep for Python": EACH * 30 + "{% endfor %}" * 30,
    "too deep for Jinja": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
}


@pytest.mark.parametrize("template", BROKEN.values(), ids=BROKEN.keys())
def test_broken_template_is_refused_when_read(tmp_path: Path, template: str) -> None:
    with pytest.raises(UnsupportedModel, match="does not parse"):
        templated(tmp_path, template)


def test_another_template_stands_in_for_the_folders_own(tmp_path: Path) -> None:
    tokenizer = templated(tmp_path, "own")
    processes = TemplateProcesses(1)
    other = tokenizer.confined_template("{{ bos_token }}{{ flavour }}{{ messages | length }}", processes)
    text, sweet = f"<|im_start|>sweet{len(TALK)}", {"flavour": "sweet"}
    assert tokenizer.render_chat(TALK, chat_template=other, variables=sweet) == text
    assert tokenizer.render_chat(TALK, TOOLS, chat_template=other, variables=sweet) == text
    assert tokenizer.render_chat(TALK) == "own"
    assert tokenizer.chat_template is not None
    assert tokenizer.chat_template.source == "own"
    processes.close()


def test_tokenizer_and_detokenizer_import_no_torch() -> None:
    code = "import sys, engine.tokenizer, engine.detokenizer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
