"""Sends what readers think of answers to POST /v1/feedback, as a product's own client would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from noria.demo.traffic import Answer
from noria.demo.users import Reaction


@dataclass(frozen=True, slots=True)
class Rated:
    """An answer and what its reader did with it."""

    answer: Answer
    reaction: Reaction


def acts(rated: Rated) -> Iterator[dict[str, Any]]:
    """The bodies to send for one answer, in the order a person would act."""
    reaction = rated.reaction
    common = {"request_id": rated.answer.request_id, "user": rated.answer.ask.reader.name}
    if reaction.thumbs is not None:
        yield common | {"kind": "thumbs", "value": reaction.thumbs}
    if reaction.regenerate:
        yield common | {"kind": "regenerate"}
    if reaction.edit is not None:
        yield common | {"kind": "edit", "text": reaction.edit}
    if reaction.comment is not None:
        yield common | {"kind": "comment", "text": reaction.comment}


def send(url: str, rated: Sequence[Rated]) -> Counter[str]:
    """Send everything; counts by kind, with thumbs as "up" and "down". Raises httpx.HTTPError."""
    sent: Counter[str] = Counter()
    with httpx.Client(base_url=url, timeout=30.0) as client:
        for body in (body for item in rated for body in acts(item)):
            key = f"{body['request_id']}/{body['kind']}"
            client.post("/feedback", json=body | {"idempotency_key": key}).raise_for_status()
            sent[_label(body)] += 1
    return sent


def _label(body: dict[str, Any]) -> str:
    if body["kind"] != "thumbs":
        return str(body["kind"])
    return "up" if body["value"] > 0 else "down"
