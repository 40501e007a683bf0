"""POST /tokenize and /detokenize, and what /v1/models says of each name."""

from typing import Any

import httpx
import pytest

from engine.tokenizer import Tokenizer
from tests.contract.model_folder import MODEL_LEN, SHAPE

CHAT = [{"role": "user", "content": "hi there"}]
MARK = "{{ 'TPL:' + messages[0]['content'] }}"


def post(served: Any, path: str, **body: Any) -> httpx.Response:
    with served.http as http:
        return http.post(path, json={"model": "base", **body})


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
def test_a_prompt_is_what_the_model_reads(served: Any, path: str) -> None:
    answer = post(served, path, prompt="tell me", return_token_strs=True).json()
    ids = served.tokenizer.encode("tell me")
    assert answer == {
        "count": len(ids),
        "max_model_len": MODEL_LEN,
        "tokens": ids,
        "token_strs": ["t", "e", "l", "l", "Ġ", "m", "e"],
    }


def test_strings_of_tokens_come_when_asked_for(served: Any) -> None:
    assert post(served, "/tokenize", prompt="").json() == {
        "count": 0,
        "max_model_len": MODEL_LEN,
        "tokens": [],
        "token_strs": None,
    }


def test_a_conversation_is_what_chat_completions_read(served: Any) -> None:
    tokens = post(served, "/tokenize", messages=CHAT).json()["tokens"]
    assert tokens == served.tokenizer.encode(served.tokenizer.render_chat(CHAT), add_special_tokens=False)
    bare = post(served, "/tokenize", messages=CHAT, add_generation_prompt=False).json()["tokens"]
    assert bare == served.tokenizer.encode(
        served.tokenizer.render_chat(CHAT, None, False), add_special_tokens=False
    )
    with served.client as client:
        answer = client.chat.completions.create(model="base", messages=CHAT, max_tokens=1)  # type: ignore[arg-type]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(tokens)


def test_an_adapter_s_own_template_is_used(served: Any) -> None:
    path = served.make_adapter("own-template", seed=910)
    (served.config.adapter_roots[0] / path / "chat_template.jinja").write_text(MARK)
    served.load("own-template", path)
    tokens = post(served, "/tokenize", model="own-template", messages=CHAT).json()["tokens"]
    assert post(served, "/detokenize", model="own-template", tokens=tokens).json() == {
        "prompt": "TPL:hi there"
    }
    served.unload("own-template")


@pytest.mark.parametrize("path", ["/detokenize", "/v1/detokenize"])
def test_special_tokens_are_part_of_the_text(served: Any, path: str) -> None:
    tokens = served.tokenizer.encode(served.tokenizer.render_chat(CHAT), add_special_tokens=False)
    text = served.tokenizer.render_chat(CHAT)
    assert post(served, path, tokens=tokens).json() == {"prompt": text}
    assert post(served, path, tokens=[]).json() == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": CHAT}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": False}, "add_generation_prompt"),
        ("/tokenize", {"messages": CHAT, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"messages": CHAT, "chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
        ("/tokenize", {"prompt": "a", "chat_template": "x"}, "chat_template"),
        ("/tokenize", {"prompt": "a", "temperature": 1}, "temperature"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [1, SHAPE["vocab_size"]]}, "tokens[1]"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ("/detokenize", {"tokens": [1 << 63]}, "tokens[0]"),
    ],
)
def test_what_cannot_be_is_refused_by_name(served: Any, path: str, body: dict[str, Any], param: str) -> None:
    answer = post(served, path, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/detokenize"])
def test_an_unknown_model_is_not_answered_for(served: Any, path: str) -> None:
    answer = post(served, path, model="Base", **({"tokens": []} if "de" in path else {"prompt": "a"}))
    assert answer.status_code == 404
    assert answer.json()["error"] | {"message": ""} == {
        "message": "",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


def test_no_replica_is_needed(served: Any) -> None:
    gateway = served.gateway
    members = gateway.fleet._members
    gateway.fleet._members = {}
    try:
        answer = post(served, "/tokenize", prompt="abc")
        assert (answer.status_code, answer.json()["max_model_len"]) == (200, MODEL_LEN)
    finally:
        gateway.fleet._members = members


def test_a_card_of_a_model_is_the_same_at_every_call(served: Any) -> None:
    with served.http as http:
        first, second = (http.get("/v1/models").json() for _ in range(2))
        card = http.get("/v1/models/base").json()
        head = http.head("/v1/models/base")
        options = http.options("/v1/models/base")
    assert first == second
    assert card in first["data"]
    assert card["object"] == "model"
    assert isinstance(card["created"], int)
    assert (head.status_code, head.content) == (200, b"")
    assert (options.status_code, "GET" in options.headers["allow"]) == (405, True)


@pytest.mark.parametrize("name", ["BASE", "nobody/has-this", "base/", "none"])
def test_a_model_that_nobody_knows_is_not_found(served: Any, name: str) -> None:
    with served.http as http:
        answer = http.get(f"/v1/models/{name}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert answer.json()["error"]["param"] == "model"


def test_spellings_are_the_vocabulary_s(served: Any) -> None:
    tokenizer: Tokenizer = served.tokenizer
    assert tokenizer.spelling(0) == "<|im_end|>"
    assert tokenizer.spelling(10_000) == ""
