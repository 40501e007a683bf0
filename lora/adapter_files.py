"""Which files of a folder make the adapter, and the chat template among them.

An adapter may carry a chat template of its own, as a file or inside the tokenizer's configuration; it is
then part of the adapter like its tensors. Nothing else in the folder is.
Source: transformers, PreTrainedTokenizerBase.save_pretrained: the file goes before the field, and of several
templates in the field the one named "default" is meant.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora.errors import InvalidChatTemplate
from lora.file_access import accessing, read_bounded, read_json_object
from lora.limits import DEFAULT_LIMITS, Limits
from lora.peft_config import CONFIG_FILE, WEIGHTS_FILE

TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_FILE = "tokenizer_config.json"
OPTIONAL_FILES = (TEMPLATE_FILE, TOKENIZER_FILE)
_FIELD = "chat_template"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One file as it lies there. sha256: hexadecimal. bytes: its size."""

    sha256: str
    bytes: int


def adapter_files(folder: Path, limits: Limits = DEFAULT_LIMITS) -> tuple[str, ...]:
    """Names of the files that make the adapter. Raises what read_chat_template raises."""
    _, source = read_chat_template(folder, limits)
    return (CONFIG_FILE, WEIGHTS_FILE) if source is None else (CONFIG_FILE, WEIGHTS_FILE, source)


def present_files(folder: Path) -> tuple[str, ...]:
    """The same of a folder that holds nothing else, such as a store's, without a look into them."""
    optional = (name for name in OPTIONAL_FILES if (folder / name).exists())
    return (CONFIG_FILE, WEIGHTS_FILE, *optional)


def read_chat_template(folder: Path, limits: Limits) -> tuple[str | None, str | None]:
    """The adapter's own chat template and the file it is in, or None and None.

    Raises InvalidChatTemplate, InvalidConfig, LimitExceeded or UnreadableFile.
    """
    if (folder / TEMPLATE_FILE).exists():
        return _text(folder / TEMPLATE_FILE, limits), TEMPLATE_FILE
    if (folder / TOKENIZER_FILE).exists():
        fields = read_json_object(folder / TOKENIZER_FILE, limits.tokenizer_config_bytes)
        if (template := _default(fields.get(_FIELD))) is not None:
            return _checked(template, TOKENIZER_FILE, limits), TOKENIZER_FILE
    return None, None


def file_infos(folder: Path, names: tuple[str, ...]) -> dict[str, FileInfo]:
    """What lies in the folder under these names. Raises AdapterNotFound or UnreadableFile."""
    return {name: _info(folder / name) for name in names}


def _text(path: Path, limits: Limits) -> str:
    try:
        template = read_bounded(path, limits.template_bytes).decode()
    except UnicodeDecodeError as error:
        raise InvalidChatTemplate(path.name, "is not UTF-8") from error
    return _checked(template, path.name, limits)


def _default(value: Any) -> Any:
    """Older tokenizers keep a list of named templates in the field."""
    if not isinstance(value, list):
        return value
    named = [entry for entry in value if isinstance(entry, dict) and entry.get("name") == "default"]
    return named[0].get("template", "") if named else None


def _checked(template: Any, file: str, limits: Limits) -> str:
    if not isinstance(template, str):
        raise InvalidChatTemplate(file, f"is of type {type(template).__name__}")
    if not template.strip() or "\0" in template:
        raise InvalidChatTemplate(file, "is empty" if not template.strip() else "holds a NUL")
    try:
        size = len(template.encode())
    except UnicodeEncodeError as error:
        raise InvalidChatTemplate(file, "holds half of a surrogate pair") from error
    if size > limits.template_bytes:
        raise InvalidChatTemplate(file, f"takes {size} bytes, more than {limits.template_bytes}")
    return template


def _info(path: Path) -> FileInfo:
    total, size = hashlib.sha256(), 0
    with accessing(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            total.update(chunk)
            size += len(chunk)
    return FileInfo(total.hexdigest(), size)
