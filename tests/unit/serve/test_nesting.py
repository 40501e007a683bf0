import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.errors import InvalidBody
from serve.protocol.body import MAX_DEPTH, read_json
from serve.protocol.nesting import is_deeper

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=30,
)


def depth(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(depth, value.values()), default=0)
        case list():
            return 1 + max(map(depth, value), default=0)
        case _:
            return 0


@given(VALUES, st.booleans())
@settings(max_examples=300)
def test_the_depth_is_that_of_the_parsed_value(value: Any, escaped: bool) -> None:
    raw = json.dumps(value, ensure_ascii=escaped).encode()
    for levels in range(depth(value) + 2):
        assert is_deeper(raw, levels) == (depth(value) > levels)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_text_that_only_opens_is_deep(opening: bytes) -> None:
    assert is_deeper(opening * 100_000, MAX_DEPTH)


def test_brackets_in_strings_do_not_count() -> None:
    raw = json.dumps({"a": '[["\\' * 1000, '"[': [1]}).encode()
    assert not is_deeper(raw, 2)


def test_a_body_that_is_too_deep_is_refused_before_it_is_parsed() -> None:
    fine = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert read_json(fine)
    with pytest.raises(InvalidBody, match=str(MAX_DEPTH)):
        read_json(fine.replace(b"[]", b"[[]]"))
