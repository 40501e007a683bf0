"""Stage 3: readers react by the rule of the product: thumbs, second tries, edits and a few words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from evals.tasks.brevity import MAX_WORDS
from noria.demo import feedback
from noria.demo.feedback import Rated
from noria.demo.landing import feedback_landed, requests_landed
from noria.demo.ledger import StageRecord, pairs
from noria.demo.rule import judge
from noria.demo.sizes import SEED
from noria.demo.stages.bring_up import Platform
from noria.demo.stages.replay import stream_all
from noria.demo.traffic import Answer
from noria.demo.users import Ask, react


def rate(platform: Platform, answers: Sequence[Answer], stage: StageRecord, console: Console) -> None:
    """React to every answer; a second try is asked for, served as a child of the first, and rated as well."""
    console.print(f"  the reader wants one finished paragraph of at most {MAX_WORDS} words")
    first = reactions(answers)
    sent = feedback.send(platform.url, first)
    again = [
        Ask(item.answer.ask.reader, item.answer.ask.prompt, parent=item.answer.request_id)
        for item in first
        if item.reaction.regenerate
    ]
    second_answers = stream_all(platform, again, console, "second tries")
    second = reactions(second_answers)
    sent += feedback.send(platform.url, second)
    rated = [item for item in (*first, *second) if item.reaction.thumbs is not None]
    landed = feedback_landed(platform.db, rated)
    faults = Counter(fault for answer in answers for fault in judge(answer.text, answer.finish_reason).faults)
    stage.figures |= dict(sent) | {
        "second_tries": len(second_answers),
        "faults": dict(faults),
        "rated": len(rated),
    }
    console.print(pairs("feedback", stage.figures))
    for kind in ("up", "down", "regenerate", "edit", "comment"):
        stage.require(sent[kind] > 0, f"no reader gave feedback of the kind {kind!r}")
    recorded = requests_landed(platform.db, second_answers)
    stage.require(
        recorded == len(second_answers), f"{recorded} of {len(second_answers)} second tries are on record"
    )
    stage.require(landed == len(rated), f"feedback on {landed} of {len(rated)} answers is on record")
    thumbs = f"{sent['up']} thumbs up, {sent['down']} down"
    stage.headline = f"{thumbs}, {sent['regenerate']} second tries, {sent['edit']} edits"


def reactions(answers: Sequence[Answer]) -> list[Rated]:
    """What the reader of each answer does with it."""
    return [Rated(answer, react(answer.ask, answer.text, answer.finish_reason, SEED)) for answer in answers]
