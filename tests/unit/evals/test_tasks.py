"""What each task counts as right, wrong and impossible to judge."""

import pytest

from evals import Case, Completion, UnknownTask
from evals.tasks import TASKS, get_task
from evals.tasks.brevity import is_brief
from evals.tasks.language import detect


def answer(text: str, finish_reason: str = "stop") -> Completion:
    return Completion(text, finish_reason, len(text.split()))


def case(expect: tuple[str, ...] = (), language: str | None = None) -> Case:
    return Case("c", ({"role": "user", "content": "?"},), expect, language)


@pytest.mark.parametrize(
    ("text", "finish_reason", "brief"),
    [
        ("One short answer.", "stop", True),
        ("  One short answer.\n", "stop", True),
        (" ".join(["word"] * 60), "stop", True),
        (" ".join(["word"] * 61), "stop", False),
        ("One short answer.", "length", False),
        ("First line.\nSecond line.", "stop", False),
        ("   ", "stop", False),
    ],
)
def test_brief_is_one_finished_paragraph_of_at_most_60_words(
    text: str, finish_reason: str, brief: bool
) -> None:
    assert is_brief(text, finish_reason) is brief
    scores = get_task("brevity").score(case(), answer(text, finish_reason))
    assert scores == {"brief": float(brief), "words": float(len(text.split()))}


@pytest.mark.parametrize(
    ("expect", "text", "right"),
    [
        (("Paris",), "It is PARIS.", 1.0),
        (("4", "four"), "There are 14 of them.", 0.0),
        (("4", "four"), "Four, I think.", 1.0),
        (("São Paulo",), "sao-paulo", 1.0),
        (("South America",), "America, in the South", 0.0),
    ],
)
def test_facts_compare_whole_words_without_case_accents_and_signs(
    expect: tuple[str, ...], text: str, right: float
) -> None:
    assert get_task("facts").score(case(expect), answer(text)) == {"facts": right}


def test_facts_do_not_ask_a_case_without_an_expected_answer() -> None:
    assert not get_task("facts").applies(case())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The capital of France is Paris, and it lies on the Seine.", "en"),
        ("La capital de España es Madrid, y está en el centro del país.", "es"),
        ("La capitale de la France est Paris et elle est au bord de la Seine.", "fr"),
        ("Die Hauptstadt von Deutschland ist Berlin und sie liegt an der Spree.", "de"),
        ("Paris.", None),
        ("42 7 13", None),
        ("Lorem ipsum dolor sit amet", None),
    ],
)
def test_language_is_told_by_stop_words_or_not_at_all(text: str, language: str | None) -> None:
    assert detect(text) == language


def test_an_answer_whose_language_cannot_be_told_is_unscored() -> None:
    assert get_task("language").score(case(language="en"), answer("Paris.")) == {"language": None}
    assert get_task("language").score(case(language="es"), answer("It is in the north of it")) == {
        "language": 0.0
    }


@pytest.mark.parametrize(
    ("text", "finish_reason", "stops"), [("Yes.", "stop", 1.0), ("Yes", "length", 0.0), (" ", "stop", 0.0)]
)
def test_stops_wants_an_end_and_something_before_it(text: str, finish_reason: str, stops: float) -> None:
    assert get_task("stops").score(case(), answer(text, finish_reason)) == {"stops": stops}


def test_an_unknown_task_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownTask, match=r"'wit'.*brevity, facts, language, stops"):
        get_task("wit")
    assert sorted(TASKS) == ["brevity", "facts", "language", "stops"]
