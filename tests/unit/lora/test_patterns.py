"""Regular expressions from outside: what trainers write passes, what could run for ever does not."""

import pytest

from lora.errors import InvalidConfig
from lora.patterns import MAX_PATTERN_LENGTH, compile_pattern, compile_suffix

GOOD = [
    r".*q_proj",
    r"model\.layers\.(0|1|2)\.self_attn\.(q|k|v|o)_proj",
    r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|v_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.mlp)",
    r"^(?!.*vision).*(?:q|v)_proj$",
    r"[^(]+[)*+]\(\*",
    r"(?P<layer>\d+)\.q",
]
BAD = [
    r"(a+)+b",
    r"(a|a)*b",
    r"((ab)*c)*",
    r"(?:a+){2,9}",
    r"(?x)(a+)#(\n+",
    r"(?i)a",
    r"(?P<x>a)(?P=x)",
    r"(a)\1",
    r"(a)?(?(1)b|c)",
    ".*" * 7,
    "(",
    ")",
    "a**",
    "a" * (MAX_PATTERN_LENGTH + 1),
]


@pytest.mark.parametrize("text", GOOD)
def test_ordinary_patterns_pass(text: str) -> None:
    assert compile_pattern("target_modules", text).pattern == text


@pytest.mark.parametrize("text", BAD)
def test_dangerous_and_broken_patterns_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"^target_modules: got .* allowed: a regular expression"):
        compile_pattern("target_modules", text)


def test_a_suffix_matches_from_a_dot_or_the_start() -> None:
    pattern = compile_suffix("rank_pattern", "q_proj")
    assert pattern.match("layers.0.q_proj")
    assert pattern.match("q_proj")
    assert not pattern.match("layers.0.xq_proj")
