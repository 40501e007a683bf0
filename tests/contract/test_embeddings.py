"""POST /v1/embeddings and /v1/score over HTTP, with a real encoder behind them."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx
import numpy as np
import openai
import pytest
import torch
from langchain_openai import OpenAIEmbeddings

from db.database import Database
from tests.contract.conftest import ADMIN
from tests.contract.embedding_platform import DIM, LONGEST, NAME, WRITER, Platform, running

TEXTS = ["the dog runs away", "a big red house", "sky"]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
EMBED: Final = "/v1/embeddings"
SCORE: Final = "/v1/score"


@pytest.fixture(scope="module")
def platform(database: Database, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with running(tmp_path_factory.mktemp("vectors"), database) as made:
        yield made


def error(answer: httpx.Response) -> tuple[int, str, str | None]:
    found = answer.json()["error"]
    return answer.status_code, found["code"], found["param"]


def test_the_openai_client_gets_what_transformers_computes(platform: Platform) -> None:
    with platform.client as client:
        answer = client.embeddings.create(model=NAME, input=TEXTS)
        floats = client.embeddings.create(model=NAME, input=TEXTS, encoding_format="float")
    assert (answer.object, answer.model) == ("list", NAME)
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert [item.embedding for item in answer.data] == [item.embedding for item in floats.data]
    got = torch.tensor([item.embedding for item in answer.data])
    torch.testing.assert_close(got, platform.expected(TEXTS), **CLOSE)
    tokens = sum(len(platform.tokenizer.encode(text)) for text in TEXTS)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (tokens, tokens)


def test_langchain_works_unchanged(platform: Platform) -> None:
    vectors = OpenAIEmbeddings(
        model=NAME, base_url=f"{platform.url}/v1", api_key="any", check_embedding_ctx_length=False
    )
    torch.testing.assert_close(
        torch.tensor(vectors.embed_documents(TEXTS)), platform.expected(TEXTS), **CLOSE
    )
    assert len(vectors.embed_query("sky")) == DIM


@pytest.mark.parametrize("form", ["text", "ids", "texts", "many ids", "mixed"])
def test_every_form_of_input_means_the_same(platform: Platform, form: str) -> None:
    ids = [platform.tokenizer.encode(text) for text in TEXTS]
    given = {
        "text": TEXTS[0], "ids": ids[0], "texts": TEXTS, "many ids": ids, "mixed": [TEXTS[0], *ids[1:]],
    }[form]  # fmt: skip
    answer = platform.post(EMBED, input=given).json()
    got = [item["embedding"] for item in answer["data"]]
    assert torch.equal(torch.tensor(got), platform.embed(*TEXTS)[: len(got)])
    assert len(got) == (1 if form in ("text", "ids") else 3)


def test_base64_is_little_endian_float32(platform: Platform) -> None:
    (item,) = platform.post(EMBED, input="sky", encoding_format="base64").json()["data"]
    values = np.frombuffer(base64.b64decode(item["embedding"]), dtype="<f4")
    assert np.array_equal(values, platform.embed("sky")[0].numpy())


def test_fewer_dimensions_are_the_first_of_length_one(platform: Platform) -> None:
    whole, cut = platform.embed(*TEXTS), platform.embed(*TEXTS, dimensions=8)
    torch.testing.assert_close(cut, torch.nn.functional.normalize(whole[:, :8], dim=-1), **CLOSE)
    assert error(platform.post(EMBED, input="sky", dimensions=DIM + 1)) == (
        400,
        "invalid_value",
        "dimensions",
    )


def test_texts_are_cut_when_that_is_asked_for(platform: Platform) -> None:
    words = ["dog", "cat", "sky", "sea"] * LONGEST
    long = " ".join(words)
    assert error(platform.post(EMBED, input=["sky", long])) == (400, "context_length_exceeded", "input[1]")
    ids = platform.tokenizer.encode(long)
    assert error(platform.post(EMBED, input=ids)) == (400, "context_length_exceeded", "input")
    first, last = " ".join(words[: LONGEST - 2]), " ".join(words[2 - LONGEST :])
    whole = platform.embed(first, last, " ".join(words[:4]))
    cut = {"truncate_prompt_tokens": -1}
    assert torch.equal(platform.embed(long, **cut)[0], whole[0])
    assert torch.equal(platform.embed(long, **cut, truncation_side="left")[0], whole[1])
    assert torch.equal(platform.embed(long, truncate_prompt_tokens=6)[0], whole[2])
    assert torch.equal(platform.embed(long, truncate_prompt_tokens=10_000)[0], whole[0])
    assert torch.equal(platform.embed(ids, truncate_prompt_tokens=5)[0], platform.embed(ids[:5])[0])
    refused = platform.post(EMBED, input=long, truncate_prompt_tokens=2)
    assert error(refused) == (400, "invalid_value", "truncate_prompt_tokens")


def test_marks_may_be_left_out(platform: Platform) -> None:
    bare = platform.tokenizer.encode("the sky", add_special_tokens=False)
    assert torch.equal(platform.embed("the sky", add_special_tokens=False), platform.embed(bare))


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "invalid_value", "input"),
        ({"input": ""}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": ["sky", ""]}, "invalid_value", "input"),
        ({"input": [["sky"]]}, "invalid_value", "input"),
        ({"input": [3.5]}, "invalid_value", "input"),
        ({"input": [-1]}, "invalid_value", "input"),
        ({"input": ["sky", [9999]]}, "invalid_value", "input[1]"),
        ({"input": ["sky"] * 2049}, "invalid_value", "input"),
        ({"input": "sky", "encoding_format": "int8"}, "invalid_value", "encoding_format"),
        ({"input": "sky", "dimensions": 0}, "invalid_value", "dimensions"),
        ({"input": "sky", "priority": 3}, "unsupported_parameter", "priority"),
        ({"input": "sky", "temperature": 1}, "unknown_parameter", "temperature"),
        ({"messages": [{"role": "user", "content": "x"}]}, "unsupported_parameter", "messages"),
        ({"input": "  ", "add_special_tokens": False}, "invalid_value", "input"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    platform: Platform, body: dict[str, Any], code: str, param: str
) -> None:
    assert error(platform.post(EMBED, **body)) == (400, code, param)


def test_a_model_is_asked_only_for_what_it_is_served_for(platform: Platform) -> None:
    chat = platform.post("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])
    assert error(chat) == (400, "wrong_task", "model")
    assert "task 'embed'" in chat.json()["error"]["message"]
    assert error(platform.post("/v1/completions", prompt="hi")) == (400, "wrong_task", "model")
    asked = platform.post(EMBED, model=WRITER, input="hi")
    assert error(asked) == (400, "wrong_task", "model")
    assert "task 'generate'" in asked.json()["error"]["message"]
    assert error(platform.post(EMBED, model="nobody", input="hi")) == (404, "model_not_found", "model")
    assert platform.post("/tokenize", prompt="the sky").json()["count"] == 4
    cards = httpx.get(f"{platform.url}/v1/models").json()["data"]
    assert {card["id"]: (card["task"], card["max_model_len"]) for card in cards}[NAME] == ("embed", LONGEST)


def test_an_adapter_changes_vectors_as_peft_does_and_is_listed(platform: Platform) -> None:
    made = platform.adapter("tuned", target_modules=["query", "value", "intermediate.dense"])
    loaded = platform.load("tuned")
    assert loaded.status_code == 200, loaded.text
    got = platform.embed(*TEXTS, model="tuned")
    torch.testing.assert_close(got, platform.expected(TEXTS, made), **CLOSE)
    assert not torch.allclose(got, platform.embed(*TEXTS), **CLOSE)
    answer = platform.post(EMBED, model="tuned", input="sky")
    assert answer.headers["x-noria-adapter"] == "tuned"
    (line,) = httpx.get(f"{platform.url}/v1/adapters?base_model={NAME}", headers=ADMIN).json()["data"]
    assert [(row["state"], row["slot"]) for row in line["residency"]] == [("ready", None)]
    check = httpx.post(f"{platform.url}/v1/adapters/tuned/check", headers=ADMIN, timeout=30)
    assert error(check) == (400, "wrong_task", "model")
    unloaded = platform.post("/v1/unload_lora_adapter", lora_name="tuned", model=None)
    assert unloaded.status_code == 200, unloaded.text
    assert error(platform.post(EMBED, model="tuned", input="sky")) == (404, "model_not_found", "model")
    assert platform.parts.worker.adapters() == {}


def test_an_adapter_that_changes_nothing_is_refused(platform: Platform) -> None:
    platform.adapter("idle", init_lora_weights=True)
    assert error(platform.load("idle"))[:2] == (400, "identical_to_base")


def test_vectors_are_the_same_in_any_company(platform: Platform) -> None:
    alone = {text: platform.embed(text)[0] for text in TEXTS}
    found: dict[int, torch.Tensor] = {}

    def ask(number: int) -> None:
        found[number] = platform.embed(TEXTS[number % 3], "the sea is blue", TEXTS[(number + 1) % 3])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, vectors in found.items():
        assert torch.equal(vectors[0], alone[TEXTS[number % 3]])
        assert torch.equal(vectors[2], alone[TEXTS[(number + 1) % 3]])


def test_a_request_leaves_a_record_that_nothing_is_trained_on(platform: Platform) -> None:
    answer = platform.post(EMBED, input=["the sky", [2, 5, 3]], user="ann", dimensions=4)
    request = answer.json()["id"].removeprefix("embd-")
    assert answer.headers["x-noria-request-id"] == request
    columns = "api, finish_reason, prompt_tokens, completion_tokens, completion, user_key, sampling, messages"
    deadline = time.monotonic() + 20
    while not (
        rows := _select(platform, f"SELECT {columns} FROM obs.inference_log WHERE id = %(id)s", request)
    ):
        assert time.monotonic() < deadline, "the record did not arrive"
        time.sleep(0.1)
    (row,) = rows
    assert (row["api"], row["finish_reason"], row["user_key"]) == ("embeddings", "stop", "ann")
    assert (row["prompt_tokens"], row["completion_tokens"], row["completion"]) == (7, 0, "")
    assert row["sampling"] == {"dimensions": 4}
    assert [message["content"] for message in row["messages"]] == ["the sky", "the"]
    consent = "INSERT INTO obs.consent (tenant, user_key, action, actor) "
    grant = consent + "VALUES ('default', 'ann', 'granted', 'ann')"
    with platform.database.transaction() as connection:
        connection.execute(grant)
    assert _select(platform, "SELECT 1 AS one FROM obs.eligible WHERE id = %(id)s", request) == []


def _select(platform: Platform, sql: str, request: str) -> list[Any]:
    with platform.database.transaction() as connection:
        return list(connection.execute(sql, {"id": request}))


def test_requests_are_counted(platform: Platform) -> None:
    def counted() -> float:
        lines = httpx.get(f"{platform.url}/metrics").text.splitlines()
        name = f'vllm:request_success_total{{adapter="base",finished_reason="stop",model_name="{NAME}"}}'
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    before = counted()
    platform.embed("sky")
    assert counted() == before + 1


def test_texts_of_a_client_who_left_are_dropped(platform: Platform) -> None:
    """The model's thread is kept busy meanwhile, so that the texts wait for their turn."""
    engine: Any = platform.parts.engine
    gate = threading.Event()
    engine._thread.submit(gate.wait, 20)
    try:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{platform.url}{EMBED}", json={"model": NAME, "input": ["sky"] * 600}, timeout=1)
        deadline = time.monotonic() + 10
        while engine.stats().waiting:
            assert time.monotonic() < deadline, "texts still wait"
            time.sleep(0.02)
        passes = engine.stats().steps
    finally:
        gate.set()
    assert platform.embed("sea").shape == (1, DIM)
    assert engine.stats().steps <= passes + 1


def test_a_full_queue_is_told_to_come_back(platform: Platform) -> None:
    engine: Any = platform.parts.engine
    gate = threading.Event()
    engine._thread.submit(gate.wait, 20)
    try:
        thread = threading.Thread(target=platform.embed, args=["sky"] * 1000)
        thread.start()
        deadline = time.monotonic() + 10
        while engine.stats().waiting < 64:
            assert time.monotonic() < deadline, "the texts did not arrive"
            time.sleep(0.02)
        refused = platform.post(EMBED, input="sea")
        assert error(refused)[:2] == (429, "queue_full")
        assert refused.headers["retry-after"]
    finally:
        gate.set()
    thread.join()
    assert platform.embed("sea").shape == (1, DIM)


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
def test_scores_are_cosines(platform: Platform, names: tuple[str, str]) -> None:
    sides = dict(zip(names, (TEXTS[0], TEXTS), strict=True))
    answer = platform.post(SCORE, **sides).json()
    vectors = platform.expected(TEXTS)
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]
    got = torch.tensor([item["score"] for item in answer["data"]])
    torch.testing.assert_close(got, vectors @ vectors[0], **CLOSE)
    pairs = platform.post("/score", **dict(zip(names, (TEXTS, TEXTS[::-1]), strict=True))).json()
    got = torch.tensor([item["score"] for item in pairs["data"]])
    torch.testing.assert_close(got, (vectors * vectors.flip(0)).sum(-1), **CLOSE)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"text_1": "sky"}, "text_1"),
        ({"text_1": "sky", "documents": ["sea"]}, "text_1"),
        ({"text_1": ["sky", "sea"], "text_2": ["sky", "sea", "cat"]}, "text_1"),
        ({"queries": ["sky", "sea"], "documents": "cat"}, "queries"),
        ({"queries": "", "documents": "cat"}, "queries"),
        ({"text_1": "sky", "text_2": ["dog " * LONGEST]}, "text_2"),
    ],
)
def test_pairs_that_are_none_are_refused(platform: Platform, body: dict[str, Any], param: str) -> None:
    assert error(platform.post(SCORE, **body))[::2] == (400, param)


async def test_many_at_once_from_the_async_client(platform: Platform) -> None:
    async with openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key="any", max_retries=0) as client:
        calls = [client.embeddings.create(model=NAME, input=["sea", text]) for text in TEXTS * 8]
        answers = await asyncio.gather(*calls)
    expected = platform.embed("sea")[0].tolist()
    assert all(torch.equal(torch.tensor(a.data[0].embedding), torch.tensor(expected)) for a in answers)


def test_a_batch_of_texts_becomes_vectors(platform: Platform) -> None:
    line = {"custom_id": "a", "method": "POST", "url": EMBED, "body": {"model": NAME, "input": TEXTS}}
    with platform.client as client:
        file = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint=EMBED, completion_window="24h")
        for _ in range(300):
            if (batch := client.batches.retrieve(batch.id)).status == "completed":
                break
            time.sleep(0.05)
        assert batch.output_file_id is not None
        made = json.loads(client.files.content(batch.output_file_id).read())["response"]["body"]
        alone = client.embeddings.create(model=NAME, input=TEXTS, encoding_format="float")
    assert [item["embedding"] for item in made["data"]] == [item.embedding for item in alone.data]
    assert batch.usage is not None
    assert batch.usage.input_tokens == alone.usage.prompt_tokens
