"""A chat template of its own is part of an adapter: digest, store, limits."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lora.errors import AdapterPathRefused, InvalidChatTemplate, InvalidConfig, LimitExceeded
from lora.format import Limits, adapter_files, read_adapter, resolve_adapter_path
from lora.store.file_store import FileStore

JINJA = "{% for m in messages %}{{ m.content }}{% endfor %}"
ALWAYS = ("adapter_config.json", "adapter_model.safetensors")


def field(folder: Path, value: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": value, "pad_token": "x"}))


def test_an_adapter_without_one_has_none(adapter_folder: Path) -> None:
    (adapter_folder / "tokenizer_config.json").write_text('{"pad_token": "x"}')
    assert read_adapter(adapter_folder).chat_template is None
    assert adapter_files(adapter_folder) == ALWAYS


@pytest.mark.parametrize(
    "value",
    [JINJA, [{"name": "tool_use", "template": "other"}, {"name": "default", "template": JINJA}]],
)
def test_one_in_the_tokenizers_configuration_is_read(adapter_folder: Path, value: object) -> None:
    field(adapter_folder, value)
    adapter = read_adapter(adapter_folder)
    assert adapter.chat_template == JINJA
    assert tuple(adapter.files) == adapter_files(adapter_folder) == (*ALWAYS, "tokenizer_config.json")


def test_the_file_goes_before_the_field(adapter_folder: Path) -> None:
    field(adapter_folder, "other")
    (adapter_folder / "chat_template.jinja").write_text(JINJA)
    assert read_adapter(adapter_folder).chat_template == JINJA
    assert adapter_files(adapter_folder) == (*ALWAYS, "chat_template.jinja")


def test_a_list_without_a_default_is_none(adapter_folder: Path) -> None:
    field(adapter_folder, [{"name": "tool_use", "template": JINJA}])
    assert read_adapter(adapter_folder).chat_template is None


def test_the_digest_follows_the_text_wherever_it_is(adapter_folder: Path) -> None:
    plain = read_adapter(adapter_folder).digest
    field(adapter_folder, JINJA)
    inside = read_adapter(adapter_folder).digest
    (adapter_folder / "tokenizer_config.json").unlink()
    (adapter_folder / "chat_template.jinja").write_text(JINJA)
    assert read_adapter(adapter_folder).digest == inside != plain
    (adapter_folder / "chat_template.jinja").write_text(JINJA + " ")
    assert read_adapter(adapter_folder).digest not in (inside, plain)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"a\0b", "holds a NUL"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"\x7fELF\x80", "is not UTF-8"),
    ],
)
def test_a_template_that_is_no_text_is_refused(adapter_folder: Path, content: bytes, message: str) -> None:
    (adapter_folder / "chat_template.jinja").write_bytes(content)
    with pytest.raises(InvalidChatTemplate, match=rf"in chat_template\.jinja {message}, allowed: a text"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    "value", [5, {}, True, [{"name": "default"}], [{"name": "default", "template": 5}], "\ud800"]
)
def test_a_field_that_is_no_text_is_refused(adapter_folder: Path, value: object) -> None:
    field(adapter_folder, value)
    with pytest.raises(InvalidChatTemplate, match=r"in tokenizer_config\.json "):
        read_adapter(adapter_folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1, "a": 2}'])
def test_a_tokenizers_configuration_that_is_no_object_is_refused(adapter_folder: Path, text: str) -> None:
    (adapter_folder / "tokenizer_config.json").write_text(text)
    with pytest.raises(InvalidConfig, match=r"tokenizer_config\.json: got .*, allowed: a JSON object"):
        read_adapter(adapter_folder)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(template_bytes=20), r"size of chat_template\.jinja in bytes is \d+, allowed: at most 20"),
        (Limits(template_bytes=len(JINJA)), None),
    ],
)
def test_a_template_has_a_limit(adapter_folder: Path, limits: Limits, message: str | None) -> None:
    (adapter_folder / "chat_template.jinja").write_text(JINJA)
    if message is None:
        assert read_adapter(adapter_folder, limits=limits).chat_template == JINJA
        return
    with pytest.raises(LimitExceeded, match=message):
        read_adapter(adapter_folder, limits=limits)


def test_a_template_in_a_field_has_the_same_limit(adapter_folder: Path) -> None:
    field(adapter_folder, JINJA)
    with pytest.raises(InvalidChatTemplate, match="takes 50 bytes, more than 20"):
        read_adapter(adapter_folder, limits=Limits(template_bytes=20))


def test_a_store_keeps_exactly_the_files_of_the_adapter(adapter_folder: Path, tmp_path: Path) -> None:
    field(adapter_folder, JINJA)
    for name in ("README.md", "optimizer.pt", "tokenizer.json"):
        (adapter_folder / name).write_text("other")
    store = FileStore(tmp_path / "store")
    digest = store.put(adapter_folder)
    folder = store.fetch(digest, tmp_path / "cache")
    expected = {*ALWAYS, "tokenizer_config.json"}
    assert {file.name for file in folder.iterdir()} - {"complete"} == expected
    assert read_adapter(folder).chat_template == JINJA
    assert read_adapter(folder).digest == digest


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_template_that_leads_out_of_the_roots_is_refused(
    make_adapter: Callable[..., Any], adapter_folder: Path, tmp_path: Path, name: str
) -> None:
    secret = tmp_path.parent / "secret"
    secret.write_text(JINJA)
    (adapter_folder / name).symlink_to(secret)
    with pytest.raises(AdapterPathRefused):
        resolve_adapter_path(adapter_folder.name, [tmp_path])
