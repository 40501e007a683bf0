"""Damaged and lying weights files are told apart before a tensor library sees them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lora.errors import InvalidWeights
from lora.format import read_adapter


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda raw: raw[: len(raw) * 6 // 10], "truncated or overlong"),
        (lambda raw: raw + b"x", "truncated or overlong"),
        (lambda raw: raw[:5], "truncated: 5 bytes"),
        (lambda raw: b"", "truncated: 0 bytes"),
        (lambda raw: (1 << 62).to_bytes(8, "little") + raw[8:], "is beyond the end of the file"),
        (lambda raw: raw[:8] + b"\xff" + raw[9:], "the header is not JSON"),
        (lambda raw: (2).to_bytes(8, "little") + b"[]", "the header is not a JSON object"),
        (lambda raw: (2).to_bytes(8, "little") + b"{}", "it holds no tensors"),
    ],
)
def test_damaged_weights_are_told_apart(
    adapter_folder: Path, spoil: Callable[[bytes], bytes], message: str
) -> None:
    path = adapter_folder / "adapter_model.safetensors"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InvalidWeights, match=message):
        read_adapter(adapter_folder)


def _header(entries: str, data: bytes) -> bytes:
    return len(entries).to_bytes(8, "little") + entries.encode() + data


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{}}', "the name 'a' occurs twice"),
        ('{"a":5}', "damaged header entry: a"),
        ('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', "damaged header entry: a"),
        ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}', "damaged header entry: a"),
        ('{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}', "dtype 'I64', allowed: F32, F16, BF16"),
        ('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', "4 bytes do not make a F32 tensor"),
        (
            '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
            '"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
            "tensors overlap or leave a gap: b",
        ),
        ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', "tensors overlap or leave a gap: a"),
    ],
)
def test_a_lying_header_is_refused(adapter_folder: Path, entries: str, message: str) -> None:
    (adapter_folder / "adapter_model.safetensors").write_bytes(_header(entries, bytes(8)))
    with pytest.raises(InvalidWeights, match=message):
        read_adapter(adapter_folder)
