"""The prompts of the demonstration, and the rule by which some are kept apart for the evaluation.

A prompt is held out when the sha256 of its text is among the smallest: nobody chooses, and no later edit of
the files can move a prompt between training and evaluation unseen.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

from evals import load_suite


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question of a reader, with the id it has in its file."""

    id: str
    text: str


def traffic_prompts() -> tuple[Prompt, ...]:
    """The prompts that readers ask; none of them is held out."""
    lines = (files("noria") / "demo/prompts.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    return tuple(Prompt(entry["id"], entry["prompt"]) for entry in entries)


def held_out_prompts() -> tuple[Prompt, ...]:
    """The prompts of the suite `brevity`, which never train."""
    return tuple(Prompt(case.id, case.messages[-1]["content"]) for case in load_suite("brevity").cases)


def split(prompts: Iterable[Prompt], held_out: int) -> tuple[list[Prompt], list[Prompt]]:
    """Part prompts into (traffic, held out): the `held_out` smallest hashes are kept apart."""
    ordered = sorted(prompts, key=_hash)
    return ordered[held_out:], ordered[:held_out]


def _hash(prompt: Prompt) -> str:
    return hashlib.sha256(prompt.text.encode("utf-8")).hexdigest()
