"""Simulated readers: who asks what, and what each does with an answer. Seeded, so a run can be told again.

A reader's taste is the rule of the product; readers differ in how often they bother to react at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from noria.demo.prompts import Prompt
from noria.demo.rule import Fault, edited, judge

REMARKS: dict[Fault, str] = {
    "unfinished": "It stops in the middle. I would rather have less, but complete.",
    "several paragraphs": "One paragraph, please. I read this on my phone.",
    "too long": "Too long for me. Two sentences would do.",
    "empty": "There is no answer here.",
}
PRAISE = "Exactly the length I like."


@dataclass(frozen=True, slots=True)
class Reader:
    """Shares from 0 to 1: of answers rated, of bad ones regenerated or edited, of rated ones commented."""

    name: str
    rates: float
    regenerates: float
    edits: float
    comments: float


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt of one reader. `parent` is the request whose answer this one shall replace."""

    reader: Reader
    prompt: Prompt
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Reaction:
    """What a reader does with one answer; nothing at all is possible."""

    thumbs: int | None = None
    regenerate: bool = False
    edit: str | None = None
    comment: str | None = None


def cast(count: int, seed: int, prefix: str) -> list[Reader]:
    """`count` readers named `prefix`-001 and so on, each with habits of its own."""
    dice = random.Random(f"{seed}/{prefix}")
    return [
        Reader(
            name=f"{prefix}-{number:03d}",
            rates=dice.uniform(0.85, 1.0),
            regenerates=dice.uniform(0.05, 0.25),
            edits=dice.uniform(0.4, 0.8),
            comments=dice.uniform(0.0, 0.1),
        )
        for number in range(1, count + 1)
    ]


def assign(readers: Sequence[Reader], prompts: Sequence[Prompt], seed: int) -> list[Ask]:
    """Every prompt goes to one reader; readers take turns, prompts come in a seeded order."""
    shuffled = list(prompts)
    random.Random(seed).shuffle(shuffled)
    return [Ask(readers[turn % len(readers)], prompt) for turn, prompt in enumerate(shuffled)]


def react(ask: Ask, text: str, finish_reason: str, seed: int) -> Reaction:
    """What the reader of `ask` does with this answer. A second answer is rated, never regenerated again."""
    reader = ask.reader
    dice = random.Random(f"{seed}/{reader.name}/{ask.prompt.id}/{'again' if ask.parent else 'first'}")
    if dice.random() >= reader.rates:
        return Reaction()
    judgement = judge(text, finish_reason)
    comments = dice.random() < reader.comments
    if judgement.thumbs > 0:
        return Reaction(thumbs=1, comment=PRAISE if comments else None)
    again = ask.parent is None and dice.random() < reader.regenerates
    edit = edited(text) if not again and dice.random() < reader.edits else None
    comment = REMARKS[judgement.faults[0]] if comments else None
    return Reaction(thumbs=-1, regenerate=again, edit=edit, comment=comment)
