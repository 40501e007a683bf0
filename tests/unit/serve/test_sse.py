import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serve import sse


def test_an_event_is_one_line_whatever_its_text() -> None:
    text = "line\nline\r\ndata: [DONE]\n\n \u2028 é 😀"
    event = sse.event({"text": text})
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event[:-2].count(b"\n") == 0
    assert json.loads(event[6:]) == {"text": text}


def test_half_a_surrogate_pair_does_not_break_a_stream() -> None:
    assert b"?" in sse.event({"text": "\ud800"})


def test_the_end_is_openais() -> None:
    assert sse.DONE == b"data: [DONE]\n\n"


@given(st.text(), st.text())
def test_a_template_makes_the_event_of_its_payload(text: str, name: str) -> None:
    def payload(inner: str) -> dict[str, Any]:
        return {"model": name, "choices": [{"text": inner}]}

    assert sse.Template(payload).event(text) == sse.event(payload(text))


def test_half_a_surrogate_pair_is_replaced_in_a_template_too() -> None:
    assert sse.Template(lambda text: {"text": text}).event("\ud800") == sse.event({"text": "\ud800"})
