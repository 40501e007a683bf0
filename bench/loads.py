"""What is asked of a server or an engine: how many streams, of which sizes, and the prompts themselves.

Prompts are exact token ids, so every server computes the same number of tokens. Knows no server.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from bench.errors import BadLoad

LOWEST_ID = 1_000
"""Ids below are left out: special tokens stand there in most vocabularies."""

USUAL = ("1:128/128", "4:128/128", "16:128/128", "32:128/128", "1:1024/128")
"""Loads that are compared unless others are asked for; see parse_load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A closed loop: `streams` clients, each sends its next request when the last one has ended.

    requests: of all streams together. prompt_tokens, output_tokens: exact, of each request.
    shared_prefix: that many first tokens are the same in all prompts; all others differ.
    vocabulary: prompt ids are drawn from LOWEST_ID up to this. Raises BadLoad.
    """

    streams: int
    requests: int
    prompt_tokens: int = 128
    output_tokens: int = 128
    shared_prefix: int = 0
    vocabulary: int = 30_000

    def __post_init__(self) -> None:
        for name in ("streams", "requests", "prompt_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise BadLoad(f"{name} is {getattr(self, name)}; at least 1 is allowed")
        if not 0 <= self.shared_prefix < self.prompt_tokens:
            raise BadLoad(
                f"shared_prefix is {self.shared_prefix}; 0 to {self.prompt_tokens - 1} is allowed "
                f"in prompts of {self.prompt_tokens} tokens"
            )
        if self.vocabulary <= LOWEST_ID:
            raise BadLoad(f"vocabulary is {self.vocabulary}; more than {LOWEST_ID} is allowed")

    @property
    def label(self) -> str:
        plural = "" if self.streams == 1 else "s"
        return f"{self.streams} stream{plural}, {self.prompt_tokens}/{self.output_tokens}"


def make_load(
    streams: int, requests: int | None, prompt_tokens: int, output_tokens: int, shared_prefix: int
) -> Load:
    """A load whose requests, where None, are two for each stream and four at least. Raises BadLoad."""
    return Load(
        streams=streams,
        requests=max(4, 2 * streams) if requests is None else requests,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        shared_prefix=shared_prefix,
    )


def parse_load(word: str, per_stream: int) -> Load:
    """ "16:128/128" is 16 streams of 128 tokens in and 128 out. Raises BadLoad."""
    match = re.fullmatch(r"(\d+):(\d+)/(\d+)", word)
    if match is None:
        raise BadLoad(f"a load such as 16:128/128 (streams:prompt/output) is expected, got {word!r}")
    streams, prompt, output = map(int, match.groups())
    return Load(streams=streams, requests=streams * per_stream, prompt_tokens=prompt, output_tokens=output)


def make_prompts(load: Load, seed: int) -> list[list[int]]:
    """Token ids of every request; the same seed makes the same ones, another seed entirely different ones."""
    draw = random.Random(seed)
    prefix = _draw(draw, load.shared_prefix, load.vocabulary)
    own = load.prompt_tokens - load.shared_prefix
    return [prefix + _draw(draw, own, load.vocabulary) for _ in range(load.requests)]


def _draw(draw: random.Random, count: int, vocabulary: int) -> list[int]:
    return [draw.randrange(LOWEST_ID, vocabulary) for _ in range(count)]
