"""The simulated readers: repeatable, faithful to the rule, and different from one another."""

from __future__ import annotations

from dataclasses import replace

from noria.demo.prompts import Prompt
from noria.demo.users import PRAISE, REMARKS, Ask, Reader, assign, cast, react

EAGER = Reader("reader-001", rates=1.0, regenerates=0.0, edits=0.0, comments=0.0)
PROMPT = Prompt("p1", "How long do eggs boil?")
GOOD = "Nine minutes from the moment the water boils."
LONG = "Nine minutes in boiling water is right. " * 20


def test_the_same_seed_tells_the_same_story() -> None:
    prompts = [Prompt(f"p{number}", f"prompt {number}") for number in range(50)]
    first, second = (assign(cast(7, 3, "reader"), prompts, 3) for _ in range(2))
    assert first == second
    assert first != assign(cast(7, 3, "reader"), prompts, 4)
    answers = [react(ask, LONG, "length", 3) for ask in first]
    assert answers == [react(ask, LONG, "length", 3) for ask in second]


def test_every_prompt_is_asked_once_and_every_reader_takes_part() -> None:
    prompts = [Prompt(f"p{number}", f"prompt {number}") for number in range(50)]
    asks = assign(cast(7, 3, "reader"), prompts, 3)
    assert sorted(ask.prompt.id for ask in asks) == sorted(prompt.id for prompt in prompts)
    assert len({ask.reader.name for ask in asks}) == 7


def test_readers_have_habits_of_their_own() -> None:
    readers = cast(24, 3, "reader")
    assert len({reader.name for reader in readers}) == 24
    assert len({reader.edits for reader in readers}) == 24
    assert all(
        0.0 <= share <= 1.0 for r in readers for share in (r.rates, r.regenerates, r.edits, r.comments)
    )


def test_thumbs_follow_the_rule() -> None:
    ask = Ask(EAGER, PROMPT)
    assert react(ask, GOOD, "stop", 1).thumbs == 1
    assert react(ask, GOOD, "length", 1).thumbs == -1
    assert react(ask, LONG, "stop", 1).thumbs == -1


def test_a_reader_who_never_rates_does_nothing() -> None:
    reaction = react(Ask(replace(EAGER, rates=0.0, edits=1.0, regenerates=1.0), PROMPT), LONG, "stop", 1)
    assert reaction.thumbs is None
    assert not reaction.regenerate
    assert reaction.edit is None


def test_a_bad_answer_is_regenerated_or_edited_but_never_both() -> None:
    both = replace(EAGER, regenerates=1.0, edits=1.0)
    assert react(Ask(both, PROMPT), LONG, "stop", 1).regenerate
    assert react(Ask(both, PROMPT), LONG, "stop", 1).edit is None
    edit = react(Ask(replace(both, regenerates=0.0), PROMPT), LONG, "stop", 1).edit
    assert edit is not None
    assert LONG.startswith(edit)


def test_a_regenerated_answer_is_not_regenerated_again() -> None:
    stubborn = replace(EAGER, regenerates=1.0)
    assert not react(Ask(stubborn, PROMPT, parent="a-request"), LONG, "stop", 1).regenerate


def test_a_good_answer_is_never_edited_or_regenerated() -> None:
    reaction = react(Ask(replace(EAGER, regenerates=1.0, edits=1.0), PROMPT), GOOD, "stop", 1)
    assert not reaction.regenerate
    assert reaction.edit is None


def test_a_comment_fits_the_judgement() -> None:
    talker = Ask(replace(EAGER, comments=1.0), PROMPT)
    assert react(talker, GOOD, "stop", 1).comment == PRAISE
    assert react(talker, GOOD, "length", 1).comment == REMARKS["unfinished"]
