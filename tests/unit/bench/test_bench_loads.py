"""Loads: exact prompts, shared prefixes, and the words of the command line."""

import pytest

from bench.client import parse_target, with_version
from bench.errors import BadLoad
from bench.loads import LOWEST_ID, USUAL, Load, make_load, make_prompts, parse_load


def test_prompts_have_the_exact_length_and_share_only_the_prefix() -> None:
    load = Load(streams=2, requests=6, prompt_tokens=40, shared_prefix=24)
    prompts = make_prompts(load, seed=3)
    assert [len(prompt) for prompt in prompts] == [40] * 6
    assert len({tuple(prompt[:24]) for prompt in prompts}) == 1
    assert len({tuple(prompt[24:]) for prompt in prompts}) == 6
    assert all(LOWEST_ID <= token < load.vocabulary for prompt in prompts for token in prompt)


def test_a_seed_repeats_its_prompts_and_another_shares_no_first_block() -> None:
    load = Load(streams=1, requests=3, prompt_tokens=32, shared_prefix=16)
    assert make_prompts(load, seed=1) == make_prompts(load, seed=1)
    first, other = make_prompts(load, seed=1), make_prompts(load, seed=2)
    assert first[0][:16] != other[0][:16]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"streams": 0}, "streams is 0"),
        ({"requests": 0}, "requests is 0"),
        ({"prompt_tokens": 8, "shared_prefix": 8}, "shared_prefix is 8; 0 to 7"),
        ({"shared_prefix": -1}, "shared_prefix is -1"),
        ({"vocabulary": LOWEST_ID}, f"vocabulary is {LOWEST_ID}"),
    ],
)
def test_a_load_that_cannot_be_offered_is_refused(change: dict[str, int], named: str) -> None:
    with pytest.raises(BadLoad, match=named):
        Load(**{"streams": 1, "requests": 1, **change})


def test_requests_are_two_a_stream_and_four_at_least_unless_given() -> None:
    assert make_load(1, None, 8, 8, 0).requests == 4
    assert make_load(16, None, 8, 8, 0).requests == 32
    assert make_load(16, 5, 8, 8, 0).requests == 5


def test_load_words() -> None:
    load = parse_load("16:1024/128", per_stream=3)
    assert (load.streams, load.requests, load.prompt_tokens, load.output_tokens) == (16, 48, 1024, 128)
    assert load.label == "16 streams, 1024/128"
    assert [parse_load(word, 1).streams for word in USUAL] == [1, 4, 16, 32, 1]
    with pytest.raises(BadLoad, match="'16x128'"):
        parse_load("16x128", per_stream=1)


def test_server_words() -> None:
    target = parse_target("noria=http://127.0.0.1:8000#one,two")
    assert (target.name, target.url, target.models) == ("noria", "http://127.0.0.1:8000", ("one", "two"))
    for wrong in ("http://127.0.0.1:8000", "noria=http://127.0.0.1:8000", "=url#model", "noria=url#"):
        with pytest.raises(BadLoad, match="NAME=URL#MODEL"):
            parse_target(wrong)


def test_a_base_url_may_or_may_not_end_in_its_version() -> None:
    assert with_version("http://h:1") == with_version("http://h:1/v1/") == "http://h:1/v1"
