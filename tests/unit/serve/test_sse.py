import json

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
