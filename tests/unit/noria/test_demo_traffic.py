"""Traffic through the openai client against a served script: what is sent, and what is read from a stream."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from noria.demo.feedback import Rated, acts
from noria.demo.prompts import Prompt
from noria.demo.traffic import Answer, Asking, ask_all, ask_once
from noria.demo.users import Ask, Reaction, Reader

READER = Reader("reader-001", rates=1.0, regenerates=0.0, edits=0.0, comments=0.0)
HEADERS = {
    "content-type": "text/event-stream",
    "x-noria-request-id": "0199",
    "x-noria-adapter": "assistant-v1",
    "x-noria-variant": "canary",
}


def chunk(text: str | None = None, finish: str | None = None, fingerprint: str = "aa-bb") -> dict[str, Any]:
    delta = {"content": text} if text is not None else {}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    common = {"id": "chatcmpl-0199", "object": "chat.completion.chunk", "created": 1, "model": "assistant"}
    return common | {"choices": choices, "system_fingerprint": fingerprint}


USAGE = chunk() | {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}


def client(chunks: list[dict[str, Any]], seen: list[httpx.Request]) -> openai.AsyncOpenAI:
    body = "".join(f"data: {json.dumps(item)}\n\n" for item in chunks) + "data: [DONE]\n\n"

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, headers=HEADERS, text=body)

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", max_retries=0, http_client=http)


async def test_an_answer_is_read_to_its_end() -> None:
    seen: list[httpx.Request] = []
    pieces: list[None] = []
    async with client([chunk("Two "), chunk("parts"), chunk(None, "stop"), USAGE], seen) as connection:
        asking = Asking("assistant", 96, extra={"min_tokens": 5})
        ask = Ask(READER, Prompt("p1", "Why?"), parent="0198")
        answer = await ask_once(connection, asking, ask, lambda: pieces.append(None))
    assert (answer.text, answer.finish_reason, answer.tokens) == ("Two parts", "stop", 2)
    assert (answer.request_id, answer.adapter, answer.variant) == ("0199", "assistant-v1", "canary")
    assert answer.fingerprints == ("aa-bb",)
    assert len(pieces) == 4
    sent = json.loads(seen[0].content)
    assert sent["messages"] == [{"role": "user", "content": "Why?"}]
    assert (sent["model"], sent["max_tokens"], sent["stream"], sent["min_tokens"]) == (
        "assistant",
        96,
        True,
        5,
    )
    assert seen[0].headers["x-noria-user"] == "reader-001"
    assert seen[0].headers["x-noria-parent"] == "0198"
    assert seen[0].headers["x-noria-source"] == "traffic"


async def test_a_stream_that_changes_its_version_is_noticed() -> None:
    chunks = [chunk("a", fingerprint="aa-base"), chunk("b", fingerprint="aa-bb"), chunk(None, "stop")]
    async with client(chunks, []) as connection:
        answer = await ask_once(connection, Asking("m", 1), Ask(READER, Prompt("p", "?")), lambda: None)
    assert answer.fingerprints == ("aa-base", "aa-bb")


async def test_a_stream_without_an_end_is_called_interrupted() -> None:
    async with client([chunk("half")], []) as connection:
        answer = await ask_once(connection, Asking("m", 1), Ask(READER, Prompt("p", "?")), lambda: None)
    assert answer.finish_reason == "interrupted"


async def test_all_answers_come_back_in_the_order_of_the_asks() -> None:
    asks = [Ask(READER, Prompt(f"p{number}", "?")) for number in range(5)]
    ticks: list[Answer] = []
    async with client([chunk("x"), chunk(None, "stop")], []) as connection:
        answers = await ask_all(connection, Asking("m", 1), asks, 2, ticks.append)
    assert [answer.ask for answer in answers] == asks
    assert len(ticks) == 5


def answered() -> Answer:
    return Answer(
        ask=Ask(READER, Prompt("p", "?")),
        request_id="0199",
        adapter="base",
        variant="base",
        fingerprints=("aa-base",),
        text="A long answer.",
        finish_reason="length",
        tokens=4,
        first_s=0.1,
        total_s=0.2,
    )


@pytest.mark.parametrize(
    ("reaction", "expected"),
    [
        (Reaction(), []),
        (Reaction(thumbs=1), [("thumbs", 1, None)]),
        (Reaction(thumbs=-1, regenerate=True), [("thumbs", -1, None), ("regenerate", None, None)]),
        (
            Reaction(thumbs=-1, edit="Short.", comment="Long!"),
            [("thumbs", -1, None), ("edit", None, "Short."), ("comment", None, "Long!")],
        ),
    ],
)
def test_a_reaction_becomes_one_act_a_kind(reaction: Reaction, expected: list[tuple[Any, ...]]) -> None:
    bodies = list(acts(Rated(answered(), reaction)))
    assert [(body["kind"], body.get("value"), body.get("text")) for body in bodies] == expected
    assert {body["request_id"] for body in bodies} <= {"0199"}
    assert {body["user"] for body in bodies} <= {"reader-001"}
