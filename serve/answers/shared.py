"""What every answer carries, the usage of a request, and the shape of a list."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve.choice import Piece
from serve.generation import Generation

MANY_LOGPROBS = 1_000


@dataclass(frozen=True, slots=True)
class Head:
    """What is equal in all chunks of an answer. `created` is in Unix seconds."""

    id: str
    created: int
    model: str
    fingerprint: str

    def envelope(self, kind: str) -> dict[str, Any]:
        """The fields that every object of this answer begins with."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def fingerprint(base_digest: str, adapter_digest: str | None) -> str:
    """Twelve digits of the base model's digest and of the adapter's, or the word base."""
    adapter = "base" if adapter_digest is None else _short(adapter_digest)
    return f"{_short(base_digest)}-{adapter}"


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def usage(generations: Iterable[Generation]) -> dict[str, Any]:
    """Tokens of a request: each prompt once, and all that was generated, handed out or not."""
    by_prompt = [generation.tallies for generation in generations]
    firsts = [tallies[0] for tallies in by_prompt]
    prompt_tokens = sum(tally.prompt_tokens for tally in firsts)
    completion_tokens = sum(
        tally.completion_tokens + tally.hidden_tokens for tallies in by_prompt for tally in tallies
    )
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(tally.cached_tokens for tally in firsts)},
    }


def takes_long(pieces: Iterable[Piece]) -> bool:
    """Whether they have so many log probabilities to show that the other streams should not wait for it."""
    return sum(len(piece.logprobs) + len(piece.prompt_logprobs or ()) for piece in pieces) > MANY_LOGPROBS


def page_of(cards: Sequence[Mapping[str, Any]], limit: int) -> dict[str, Any]:
    """A page of at most `limit` of the cards; one more tells that there are more."""
    shown = cards[:limit]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(cards) > limit,
    }


@dataclass(slots=True)
class Collected:
    """All pieces of one choice."""

    pieces: list[Piece]

    @property
    def text(self) -> str:
        """The text of the choice so far."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def last(self) -> Piece:
        """The newest piece, which holds the finish reason once there is one."""
        return self.pieces[-1]


def collect(pieces: Iterable[Piece], choices: int) -> list[Collected]:
    """Pieces by choice."""
    collected = [Collected([]) for _ in range(choices)]
    for piece in pieces:
        collected[piece.index].pieces.append(piece)
    return collected
