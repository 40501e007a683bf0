"""The Responses API as the unmodified openai client sees it, and the conversations that are kept."""

import json
from typing import Any

import httpx
import openai
import pytest

import db.feedback
import db.keys
import db.requests
from db.errors import DatabaseAway


def fixed(**options: Any) -> dict[str, Any]:
    return {"model": "assistant", "input": "hi", "max_output_tokens": 12, "temperature": 1.0} | options


def seeded(**options: Any) -> dict[str, Any]:
    return fixed(extra_body={"seed": 3}, **options)


def chatted(served: Any, messages: list[dict[str, Any]], **options: Any) -> str:
    """What the same conversation gives as a chat."""
    asked = {"model": "assistant", "messages": messages, "max_tokens": 12, "seed": 3}
    with served.client as client:
        return client.chat.completions.create(**(asked | options)).choices[0].message.content or ""


def test_an_answer_is_that_of_the_same_chat(served: Any) -> None:
    with served.client as client:
        answer = client.responses.create(**seeded(instructions="Be brief.", metadata={"a": "b"}))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    assert answer.output_text == chatted(served, messages)
    assert answer.object == "response"
    assert answer.id.startswith("resp_")
    assert answer.instructions == "Be brief."
    assert answer.metadata == {"a": "b"}
    assert answer.model == "assistant"
    assert answer.tools == []
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.output[0].type == "message"


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_ends_with_the_whole_answer(served: Any, seed: int) -> None:
    asked = fixed(extra_body={"seed": seed})
    with served.client as client:
        whole = client.responses.create(**asked)
        events = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert [event.type for event in events[-4:]] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{whole.status}",
    ]
    assert all(event.type == "response.output_text.delta" for event in events[4:-4])
    assert "".join(event.delta for event in events[4:-4]) == whole.output_text
    final = events[-1].response
    assert final.output_text == whole.output_text
    assert final.usage.input_tokens == whole.usage.input_tokens
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.status == whole.status
    assert final.incomplete_details == whole.incomplete_details
    if whole.status == "incomplete":
        assert final.incomplete_details.reason == "max_output_tokens"
        assert final.output[0].status == "incomplete"


def test_the_events_have_names_and_there_is_no_done(served: Any) -> None:
    with served.http as http, http.stream("POST", "/v1/responses", json=fixed(stream=True)) as answer:
        lines = [line for line in answer.iter_lines() if line]
    names, data = lines[::2], lines[1::2]
    assert all(name.startswith("event: ") for name in names)
    types = [json.loads(line.removeprefix("data: "))["type"] for line in data]
    assert [name.removeprefix("event: ") for name in names] == types
    assert not any("[DONE]" in line for line in lines)


def completing_seed(served: Any) -> int:
    """A seed with which the model ends by itself."""
    with served.client as client:
        for seed in range(200):
            answer = client.responses.create(
                **fixed(max_output_tokens=60, store=False, extra_body={"seed": seed})
            )
            if answer.status == "completed":
                return seed
    raise AssertionError("no seed ends an answer")


def test_the_clients_own_state_machine_accepts_every_event(served: Any) -> None:
    asked = fixed(max_output_tokens=60, extra_body={"seed": completing_seed(served)})
    with served.client as client, client.responses.stream(**asked) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert final.status == "completed"
    assert final.completed_at is not None
    assert (snapshots or [""])[-1] == final.output_text


async def test_the_asynchronous_client_streams_too(served: Any) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any", max_retries=0) as client:
        whole = await client.responses.create(**seeded())
        stream = await client.responses.create(**seeded(stream=True))
        text = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
    assert text == whole.output_text


def test_logprobs_come_where_they_are_asked_for(served: Any) -> None:
    with served.client as client:
        with_them = client.responses.create(**seeded(include=["message.output_text.logprobs"]))
        without = client.responses.create(**seeded())
        events = list(
            client.responses.create(**seeded(include=["message.output_text.logprobs"], stream=True))
        )
    part = with_them.output[0].content[0]
    assert "".join(item.token for item in part.logprobs) == part.text
    assert without.output[0].content[0].logprobs == []
    streamed = [item for event in events if event.type.endswith("text.delta") for item in event.logprobs]
    assert [item.token for item in streamed] == [item.token for item in part.logprobs]


def test_a_conversation_goes_on_from_a_kept_answer(served: Any) -> None:
    with served.client as client:
        first = client.responses.create(**seeded(instructions="forgotten in the next turn"))
        second = client.responses.create(**seeded(input="and?", previous_response_id=first.id))
        third = client.responses.create(
            **seeded(input="so", previous_response_id=second.id, instructions="anew")
        )
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "and?"},
    ]
    assert second.output_text == chatted(served, history)
    assert second.previous_response_id == first.id
    history = [
        {"role": "system", "content": "anew"},
        *history,
        {"role": "assistant", "content": second.output_text},
        {"role": "user", "content": "so"},
    ]
    assert third.output_text == chatted(served, history)


def test_a_streamed_answer_can_be_gone_on_from_as_soon_as_it_ends(served: Any) -> None:
    with served.client as client:
        *_, last = client.responses.create(**seeded(stream=True))
        after = client.responses.create(**seeded(input="on", previous_response_id=last.response.id))
    assert after.previous_response_id == last.response.id


def test_the_output_handed_in_again_is_the_same_conversation(served: Any) -> None:
    with served.client as client:
        first = client.responses.create(**seeded())
        by_id = client.responses.create(**seeded(input="on", previous_response_id=first.id))
        items = [{"role": "user", "content": "hi"}, *first.output, {"role": "user", "content": "on"}]
        by_items = client.responses.create(**seeded(input=items))
    assert by_id.output_text == by_items.output_text


def test_an_item_may_be_named_in_the_place_of_itself(served: Any) -> None:
    with served.client as client:
        first = client.responses.create(**seeded())
        (said,) = client.responses.input_items.list(first.id)
        items = [{"type": "item_reference", "id": said.id}, {"id": first.output[0].id}]
        asked = [*items, {"role": "user", "content": "on"}]
        by_reference = client.responses.create(**seeded(input=asked))
        by_id = client.responses.create(**seeded(input="on", previous_response_id=first.id))
        client.responses.delete(first.id)
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**seeded(input=asked))
    assert by_reference.output_text == by_id.output_text
    assert caught.value.param == "input"


def test_a_kept_answer_is_read_listed_and_forgotten(served: Any) -> None:
    items = [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}]
    with served.client as client:
        made = client.responses.create(**seeded(input=items))
        assert client.responses.retrieve(made.id) == made
        page = client.responses.input_items.list(made.id, order="asc", limit=1)
        listed = list(page)
        assert page.has_more
        assert [item.content[0].text for item in listed] == ["a", "b"]
        assert [item.role for item in client.responses.input_items.list(made.id)] == ["user", "developer"]
        client.responses.delete(made.id)
        for look in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
            with pytest.raises(openai.NotFoundError) as caught:
                look(made.id)
            assert caught.value.code == "response_not_found"


def test_what_is_not_to_be_kept_is_not(served: Any) -> None:
    with served.client as client:
        made = client.responses.create(**seeded(store=False))
        assert made.model_extra["store"] is False
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id)
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**seeded(previous_response_id=made.id))
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


def test_the_answer_comes_with_the_database_away(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise DatabaseAway("the server closed the connection")

    for name in ("insert", "get", "chain"):
        monkeypatch.setattr(f"db.responses.{name}", away)
    before = served.gateway.metrics.responses_not_kept._value.get()
    with served.client as client:
        made = client.responses.create(**seeded())
        *_, last = client.responses.create(**seeded(stream=True))
        with pytest.raises(openai.InternalServerError) as caught:
            client.responses.create(**seeded(previous_response_id=made.id))
    assert made.output_text == last.response.output_text
    assert (made.model_extra["store"], last.response.model_extra["store"]) == (False, False)
    assert caught.value.code == "database_unavailable"
    assert served.gateway.metrics.responses_not_kept._value.get() == before + 2
    monkeypatch.undo()

    def kept() -> bool:
        with served.client as client:
            again = client.responses.create(**seeded())
            return bool(again.model_extra["store"])

    served.until(kept)


def test_a_tenant_sees_none_of_anothers_answers(served: Any) -> None:
    with served.database.transaction() as connection:
        connection.execute(b"INSERT INTO serve.tenant (id) VALUES ('rival') ON CONFLICT DO NOTHING")
    ours, theirs = db.keys.create(served.database), db.keys.create(served.database, "rival")
    with (
        served.another(require_api_key=True) as other,
        openai.OpenAI(base_url=f"{other.url}/v1", api_key=ours, max_retries=0) as we,
        openai.OpenAI(base_url=f"{other.url}/v1", api_key=theirs, max_retries=0) as they,
    ):
        made = we.responses.create(**seeded())
        assert we.responses.retrieve(made.id).id == made.id
        for look in (they.responses.retrieve, they.responses.delete, they.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                look(made.id)
        item = {"type": "item_reference", "id": made.output[0].id}
        for stolen in ({"previous_response_id": made.id}, {"input": [item]}):
            with pytest.raises(openai.BadRequestError, match="not found"):
                they.responses.create(**seeded(**stolen))


def test_a_client_that_leaves_ends_its_answer_and_nothing_is_kept(served: Any) -> None:
    asked = fixed(max_output_tokens=400, stream=True, extra_body={"seed": 1, "ignore_eos": True})
    with served.client as client:
        with client.responses.create(**asked) as stream:
            made = next(iter(stream)).response
        served.until(served.idle)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id)


def test_the_record_is_that_of_a_chat(served: Any) -> None:
    with served.client as client:
        first = client.responses.create(**seeded())
        second = client.responses.create(
            **seeded(input="and?", previous_response_id=first.id, user="ann", metadata={"k": "v"})
        )
        with served.http as http:
            sent = {"request_id": second.id, "kind": "thumbs", "value": 1}
            assert http.post("/v1/feedback", json=sent).status_code == 202
    request_id = second.id.removeprefix("resp_")
    row = served.until(lambda: db.requests.get(served.database, request_id))
    assert row["api"] == "responses"
    assert row["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "and?"},
    ]
    assert row["completion"] == second.output_text
    assert row["user_key"] == "ann"
    assert served.until(lambda: db.feedback.current(served.database, row["id"]))[0].value == 1


def test_headers_say_who_answers(served: Any) -> None:
    with served.client as client:
        raw = client.responses.with_raw_response.create(**seeded())
    assert raw.headers["x-noria-variant"] == "base"
    assert raw.parse().id == "resp_" + raw.headers["x-noria-request-id"].replace("-", "")


def test_a_failure_in_the_middle_is_told_by_events(served: Any) -> None:
    for replica in served.replicas:
        replica.runner.poison = served.tokenizer.encode("~")[0]
    try:
        with served.client as client:
            events = list(client.responses.create(**seeded(input="1~", stream=True)))
            with pytest.raises(openai.InternalServerError):
                client.responses.create(**seeded(input="2~"))
    finally:
        for replica in served.replicas:
            replica.runner.poison = None
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2].code == "generation_failed"
    assert events[-1].response.status == "failed"
    assert events[-1].response.error.code == "server_error"
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("extra", "param", "code"),
    [
        ({"background": True}, "background", "unsupported_parameter"),
        ({"conversation": "conv_1"}, "conversation", "unsupported_parameter"),
        ({"truncation": "auto"}, "truncation", "unsupported_parameter"),
        ({"service_tier": "flex"}, "service_tier", "unsupported_parameter"),
        ({"messages": []}, "messages", "unknown_parameter"),
        ({"n": 2}, "n", "invalid_value"),
        ({"input": []}, "input", "invalid_value"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input", "invalid_value"),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0]", "invalid_value"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "invalid_value"),
        ({"include": ["reasoning.encrypted_content"]}, "include[0]", "invalid_value"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options", "invalid_value"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "invalid_value"),
        ({"previous_response_id": "resp_7"}, "previous_response_id", "previous_response_not_found"),
        ({"top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"seed": "x"}, "seed", "invalid_value"),
        ({"input": "x" * 600}, "input", "context_length_exceeded"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]},
            "input[0].content[0]",
            "invalid_value",
        ),
    ],
)
def test_what_is_not_served_is_refused_by_its_name(
    served: Any, extra: dict[str, Any], param: str, code: str
) -> None:
    with served.client as client, pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**fixed(), extra_body=extra)
    assert (caught.value.param, caught.value.code) == (param, code)


def test_queries_are_as_strict_and_nothing_is_made_in_the_background(served: Any) -> None:
    with served.client as client:
        made = client.responses.create(**seeded())
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.cancel(made.id)
        assert caught.value.code == "not_in_background"
    with served.http as http:
        path = f"/v1/responses/{made.id}"
        answers: list[httpx.Response] = [
            http.get(path, params={"stream": "true"}),
            http.get(f"{path}/input_items", params={"limit": 0}),
            http.get(f"{path}/input_items", params={"after": "msg_nothing"}),
            http.get(f"{path}/input_items", params={"colour": "red"}),
        ]
    assert [answer.json()["error"]["param"] for answer in answers] == ["stream", "limit", "after", "colour"]
    assert {answer.status_code for answer in answers} == {400}


def test_an_unknown_model_is_none(served: Any) -> None:
    with served.client as client, pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(**fixed(model="nobody"))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
