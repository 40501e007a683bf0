"""The canonical text of JSON values."""

from __future__ import annotations

import pytest

from db.canonical import canonical_json, prompt_hash, sha256_hex


def test_keys_are_sorted_and_text_is_kept() -> None:
    assert canonical_json({"b": [1, None, True], "a": 'é"\n'}) == '{"a":"é\\"\\n","b":[1,null,true]}'


def test_the_order_of_keys_does_not_matter_but_that_of_messages_does() -> None:
    first, second = {"role": "user", "content": "x"}, {"content": "x", "role": "user"}
    assert prompt_hash([first]) == prompt_hash([second])
    assert prompt_hash([first, {"role": "user", "content": "y"}]) != prompt_hash(
        [{"role": "user", "content": "y"}, first]
    )


def test_a_known_hash() -> None:
    assert sha256_hex("[]") == prompt_hash([])
    assert sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("nan")})
