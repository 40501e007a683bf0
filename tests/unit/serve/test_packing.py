"""What a record holds comes back as it was."""

from datetime import UTC, datetime

import pytest

from serve.record.packing import pack, unpack


@pytest.mark.parametrize("number", [0, -1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**300])
def test_integers_of_any_size(number: int) -> None:
    assert unpack(pack({"tools": [{"maximum": number}]})) == {"tools": [{"maximum": number}]}


def test_times_and_texts() -> None:
    record = {"at": datetime(2026, 1, 2, tzinfo=UTC), "text": "ü\0", "parts": [1.5, None, True]}
    assert unpack(pack(record)) == record


def test_anything_else_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match="a record holds object"):
        pack([object()])
