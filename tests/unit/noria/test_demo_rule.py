"""The rule of the fictional product: what it calls good, why it calls the rest bad, and how it edits."""

from __future__ import annotations

import pytest

from evals.tasks.brevity import MAX_WORDS, is_brief
from noria.demo.rule import edited, judge

BRIEF = "Boil the eggs for nine minutes. Then cool them in cold water."


@pytest.mark.parametrize(
    ("text", "finish", "faults"),
    [
        (BRIEF, "stop", ()),
        (BRIEF, "length", ("unfinished",)),
        (f"{BRIEF}\n\n{BRIEF}", "stop", ("several paragraphs",)),
        ("word " * (MAX_WORDS + 1), "stop", ("too long",)),
        ("word " * (MAX_WORDS + 1) + "\nmore", "length", ("unfinished", "several paragraphs", "too long")),
        ("  \n ", "stop", ("empty",)),
    ],
)
def test_an_answer_is_judged_by_how_it_ends_and_how_long_it_is(
    text: str, finish: str, faults: tuple[str, ...]
) -> None:
    judgement = judge(text, finish)
    assert judgement.faults == faults
    assert judgement.thumbs == (-1 if faults else 1)


def test_exactly_the_allowed_number_of_words_is_good() -> None:
    assert judge("word " * MAX_WORDS, "stop").thumbs == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{BRIEF} A third sentence is not needed. And it goes", BRIEF),
        ("Boil the eggs for about nine minutes. Then co", "Boil the eggs for about nine minutes."),
        (
            "Use a lid on the pot, always! (It saves energy.) More.",
            "Use a lid on the pot, always! (It saves energy.)",
        ),
        (f"{BRIEF}\n\n1. First step", BRIEF),
        ("Here are some things that you can do today:\n\n1. Rest", None),
        ("1. Boil the eggs for nine minutes and cool them.", None),
        ("- Boil the eggs for nine minutes and cool them.", None),
        ("Yes.", None),
        ("", None),
        ("word " * 80 + ".", None),
    ],
)
def test_an_edit_keeps_the_first_complete_sentences(text: str, expected: str | None) -> None:
    assert edited(text) == expected


def test_an_edit_is_always_an_answer_the_reader_likes() -> None:
    kept = edited(f"{BRIEF} {BRIEF} {BRIEF}")
    assert kept is not None
    assert is_brief(kept, "stop")
