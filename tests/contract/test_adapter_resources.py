"""What the admin API says of adapters: answers in JSON, names of every kind, pages, pins, places."""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import openai
import pytest

import db.audit
import db.registry
import db.residency
from tests.contract.conftest import ADMIN
from tests.contract.model_folder import CHATML
from tests.contract.replicas import Replica

PROMPT = "hello"
_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"resource-{next(_names)}"


def call(served: Any, method: str, path: str, **options: Any) -> httpx.Response:
    with served.http as http:
        return http.request(method, path, headers=ADMIN, **options)


def of(name: str, action: str = "") -> str:
    return f"/v1/adapters/{quote(name, safe='')}{action}"


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_who_asks_for_json_learns_what_was_loaded(served: Any, name: str) -> None:
    path = served.make_adapter(name, 300)
    body = {"lora_name": name, "lora_path": path}
    headers = ADMIN | {"accept": "application/json"}
    with served.http as http:
        told = http.post("/v1/load_lora_adapter", json=body, headers=headers).json()
        assert told["message"] == f"Success: LoRA adapter '{name}' added successfully."
        assert list(told["matched_modules"]) == ["model.layers.0.self_attn.q_proj"]
        assert {len(digest) for digest in told["files"].values()} == {64}
        assert (told["id"], told["base_model"], told["rank"], told["bytes"]) == (name, "base", 4, 512)
        assert told["digest"] == served.gateway.watcher.snapshot.adapters[name].digest
        assert sorted(told["replicas"]) == ["replica-0", "replica-1"]
        gone = http.post("/v1/unload_lora_adapter", json={"lora_name": name}, headers=headers).json()
        assert gone["message"] == f"Success: LoRA adapter '{name}' removed successfully."
        assert (gone["id"], gone["digest"]) == (name, told["digest"])
        plain = http.post("/v1/load_lora_adapter", json=body, headers=ADMIN | {"accept": "*/*"})
        assert plain.headers["content-type"].startswith("text/plain")


def test_bodies_of_vllms_and_sglangs_clients_are_taken(served: Any, name: str) -> None:
    path = served.make_adapter(name, 301)
    fields = {"lora_int_id": 7, "load_inplace": False, "is_3d_lora_weight": False, "pinned": True}
    assert served.load(name, path, **fields).status_code == 200
    assert call(served, "GET", of(name)).json()["pinned"] is True
    refused = served.load(f"{name}-b", path, is_3d_lora_weight=True)
    assert (refused.status_code, code(refused)) == (400, "unsupported_parameter")
    body = {"lora_name": name, "lora_int_id": None}
    assert call(served, "POST", "/v1/unload_lora_adapter", json=body).status_code == 200


def test_the_same_bytes_in_place_change_nothing(served: Any, name: str) -> None:
    path = served.make_adapter(name, 302)
    served.load(name, path)
    epoch = served.gateway.watcher.snapshot.epoch
    assert served.load(name, path, load_inplace=True).status_code == 200
    assert served.gateway.watcher.snapshot.epoch == epoch
    assert [event.kind for event in db.registry.events(served.database, adapter_id=name)] == ["registered"]


def test_of_loads_through_two_gateways_at_once_one_succeeds(served: Any, name: str) -> None:
    path = served.make_adapter(name, 303)
    with served.another() as other, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: (served, other)[n % 2].load(name, path), range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7
    assert {code(answer) for answer in answers if answer.is_error} == {"adapter_already_loaded"}
    assert len(served.gateway.admin._locks) == 0


@pytest.mark.parametrize(
    "bad",
    [
        "",
        " a",
        "a ",
        "x" * 201,
        "x" * 300,
        "a\nb",
        "a\x00b",
        "a\x85b",
        "/a",
        "a/",
        "a//b",
        ".",
        "../a",
        "a/./b",
    ],
)
def test_names_that_no_path_or_header_can_carry_are_refused(served: Any, bad: str) -> None:
    refused = served.load(bad, served.make_adapter(f"bad-{next(_names)}", 304))
    assert (refused.status_code, code(refused)) == (400, "invalid_value")
    assert refused.json()["error"]["param"] == "lora_name"
    assert bad not in served.gateway.watcher.snapshot.adapters


@pytest.mark.parametrize(
    "odd",
    [
        "a:b",
        "org/name",
        "a b",
        "x" * 200,
        "größe-日本-🙂",
        "a/b/pin",
        "50%25 off?#x",
        "a\\b",
        "a&b=c+d",
        "Base",
    ],
)
def test_any_other_name_works_through_every_endpoint(served: Any, odd: str) -> None:
    assert served.load(odd, served.make_adapter(f"odd-{next(_names)}", 305)).status_code == 200
    with served.client as client:
        made = client.completions.with_raw_response.create(model=odd, prompt=PROMPT, max_tokens=4)
        assert made.headers["x-noria-adapter"].startswith(odd[:1] if odd.isascii() else "gr%C3%B6")
        assert odd in {model.id for model in client.models.list()}
        assert client.models.retrieve(odd).id == odd
    assert call(served, "GET", of(odd)).json()["id"] == odd
    assert call(served, "POST", of(odd, "/pin")).json()["pinned"] is True
    assert call(served, "POST", of(odd, "/unpin")).json()["pinned"] is False
    before = call(served, "GET", "/v1/adapters", params={"limit": 1000}).json()["data"]
    place = [row["id"] for row in before].index(odd)
    after = call(served, "GET", "/v1/adapters", params={"limit": 1000, "after": odd}).json()["data"]
    assert [row["id"] for row in after] == [row["id"] for row in before[place + 1 :]]
    assert served.unload(odd).status_code == 200
    with served.client as client, pytest.raises(openai.NotFoundError):
        client.completions.create(model=odd, prompt=PROMPT, max_tokens=4)


def test_a_name_of_another_case_or_just_unloaded_is_unknown_and_says_which_parameter(
    served: Any, name: str
) -> None:
    served.load(name, served.make_adapter(name, 306))
    served.unload(name)
    for asked in (name, name.upper(), "BASE", "Assistant", "nobody"):
        with served.client as client, pytest.raises(openai.NotFoundError) as refused:
            client.completions.create(model=asked, prompt=PROMPT, max_tokens=4)
        assert (refused.value.param, refused.value.code) == ("model", "model_not_found")


def test_pages_hold_each_adapter_once(served: Any, name: str) -> None:
    for number in range(3):
        served.load(f"{name}-{number}", served.make_adapter(f"{name}-{number}", 307))
    served.unload(f"{name}-1")
    seen: list[str] = []
    more = True
    while more:
        page = call(
            served, "GET", "/v1/adapters", params={"limit": 2} | ({"after": seen[-1]} if seen else {})
        ).json()
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
        seen += [row["id"] for row in page["data"]]
        more = page["has_more"]
    assert len(seen) == len(set(seen)) == len(db.registry.page(served.database, limit=1000))
    assert {f"{name}-{number}" for number in range(3)} <= set(seen)
    loaded = call(served, "GET", "/v1/adapters", params={"limit": 1000, "loaded": "true"}).json()["data"]
    assert f"{name}-1" not in {row["id"] for row in loaded}
    assert f"{name}-0" in {row["id"] for row in loaded}
    none = call(served, "GET", "/v1/adapters", params={"endpoint": "nosuch"}).json()
    assert (none["data"], none["has_more"], none["last_id"]) == ([], False, None)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "status=great", "loaded=perhaps", "after=%00", "sort=id"]
)
def test_a_query_that_means_nothing_is_refused(served: Any, query: str) -> None:
    refused = call(served, "GET", f"/v1/adapters?{query}")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == query.partition("=")[0]


def test_one_adapter_is_told_with_its_history_and_its_places(served: Any, name: str) -> None:
    served.load(name, served.make_adapter(name, 308))
    with served.client as client:
        client.completions.create(model=name, prompt=PROMPT, max_tokens=4)
    served.until(served.idle)
    row = call(served, "GET", of(name)).json()
    listed = call(served, "GET", "/v1/models").json()["data"]
    (card,) = [model for model in listed if model["id"] == name]
    assert (row["created"], card["parent"]) == (card["created"], "base")
    assert (row["status"], row["loaded"], row["endpoint"], row["parent"]) == ("candidate", True, None, None)
    places = row["residency"]
    assert [place["replica"] for place in places] == ["replica-0", "replica-1"]
    assert {place["state"] for place in places} == {"ready"}
    assert [place["pins"] for place in places] == [0, 0]
    assert sum(place["last_use"] is not None for place in places) >= 1
    served.unload(name)
    gone = call(served, "GET", of(name)).json()
    assert (gone["loaded"], gone["id"]) == (False, name)


@pytest.mark.parametrize(
    ("method", "action"), [("GET", ""), ("POST", "/pin"), ("POST", "/unpin"), ("POST", "/check")]
)
def test_an_adapter_that_nobody_registered_is_not_found(served: Any, method: str, action: str) -> None:
    for unknown in ("nobody", "x" * 300, "a\x00b"):
        answer = call(served, method, of(unknown, action))
        assert (answer.status_code, code(answer)) == (404, "adapter_not_found")


@contextmanager
def another_replica(served: Any) -> Iterator[Replica]:
    """One more replica beside the others, as after a restart: it knows nothing."""
    made = Replica(served.config.models[0].engine, f"replica-late-{next(_names)}", served.directory)
    served.run(made.start())
    try:
        yield made
    finally:
        served.run(made.stop())
        served.run(served.directory.leave(made.name))


def test_a_pin_reaches_every_replica_at_once_and_one_that_starts_later(served: Any, name: str) -> None:
    served.load(name, served.make_adapter(name, 309))
    digest = served.gateway.watcher.snapshot.adapters[name].digest
    pinned = call(served, "POST", of(name, "/pin")).json()
    assert [place["pinned"] for place in pinned["residency"]] == [True, True]
    assert all(replica.worker.adapters()[digest]["pinned"] for replica in served.replicas)
    with another_replica(served) as late:
        served.until(lambda: digest in late.worker.adapters() and late.worker.adapters()[digest]["pinned"])
    unpinned = call(served, "POST", of(name, "/unpin")).json()
    assert [place["pinned"] for place in unpinned["residency"]] == [False, False]
    kinds = [event.kind for event in db.registry.events(served.database, adapter_id=name)]
    assert kinds == ["unpinned", "pinned", "registered"]
    actions = {event.action for event in db.audit.events(served.database) if event.subject == name}
    assert actions == {"adapter.registered", "adapter.pinned", "adapter.unpinned"}


def test_a_pin_follows_a_swap_and_ends_with_the_unload(served: Any, name: str) -> None:
    served.load(name, served.make_adapter(name, 310), pinned=True)
    first = served.gateway.watcher.snapshot.adapters[name].digest
    served.load(name, served.make_adapter(f"{name}-new", 311), load_inplace=True)
    second = served.gateway.watcher.snapshot.adapters[name].digest
    for replica in served.replicas:
        served.until(lambda replica=replica: first not in replica.worker.adapters())
        assert replica.worker.adapters()[second]["pinned"]
    served.unload(name)
    for replica in served.replicas:
        served.until(lambda replica=replica: second not in replica.worker.adapters())
    refused = call(served, "POST", of(name, "/pin"))
    assert (refused.status_code, code(refused)) == (409, "adapter_not_loaded")


def test_where_adapters_are_can_be_asked_in_sql(served: Any, name: str) -> None:
    served.load(name, served.make_adapter(name, 312))
    digest = served.gateway.watcher.snapshot.adapters[name].digest

    def places() -> set[str]:
        return {row.replica for row in db.residency.rows(served.database) if row.adapter_digest == digest}

    served.until(lambda: places() == {"replica-0", "replica-1"})
    with another_replica(served) as late, served.another() as other:
        served.until(lambda: len(served.gateway.fleet.members()) == 3)
        call(served, "POST", of(name, "/pin"))
        served.until(lambda: late.name in places())
        assert other.gateway.fleet.view.scribe == served.gateway.fleet.view.scribe
    served.until(lambda: places() == {"replica-0", "replica-1"})
    served.unload(name)
    served.until(lambda: places() == set())


TEMPLATE = "Q: {{ messages[-1].content }} A:"


def chat(served: Any, model: str) -> Any:
    with served.client as client:
        made = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "why?"}], max_tokens=16, seed=1
        )
    return made.choices[0].message.content


def with_template(served: Any, name: str, seed: int, template: str) -> str:
    path: str = served.make_adapter(name, seed)
    (served.config.adapter_roots[0] / path / "chat_template.jinja").write_text(template)
    return path


def test_an_adapters_own_template_shapes_its_prompts(served: Any, name: str) -> None:
    served.load(name, with_template(served, name, 313, TEMPLATE))
    row = served.gateway.watcher.snapshot.adapters[name]
    assert row.config["chat_template"] == TEMPLATE
    assert chat(served, name) == served.expected("Q: why? A:", 16, seed=1, adapter=row.digest)
    served.load(name, served.make_adapter(f"{name}-plain", 313), load_inplace=True)
    plain = served.gateway.watcher.snapshot.adapters[name]
    assert "chat_template" not in plain.config
    assert plain.digest != row.digest
    turn = "<|im_start|>user\nwhy?<|im_end|>\n<|im_start|>assistant\n"
    assert chat(served, name) == served.expected(turn, 16, seed=1, adapter=plain.digest)


def test_a_template_that_repeats_the_bases_is_not_kept_twice(served: Any, name: str) -> None:
    served.load(name, with_template(served, name, 314, CHATML))
    assert "chat_template" not in served.gateway.watcher.snapshot.adapters[name].config


def test_a_template_that_does_not_compile_is_refused(served: Any, name: str) -> None:
    refused = served.load(name, with_template(served, name, 315, "{% for m in messages %}"))
    assert (refused.status_code, code(refused)) == (400, "invalid_chat_template")
    assert name not in served.gateway.watcher.snapshot.adapters


def test_a_template_that_takes_too_much_is_refused_and_the_gateway_goes_on(served: Any, name: str) -> None:
    served.load(name, with_template(served, name, 317, "{{ messages[0].content * 10 ** 10 }}"))
    with pytest.raises(openai.BadRequestError, match="the chat template refused the messages: MemoryError"):
        chat(served, name)
    served.load(f"{name}-plain", with_template(served, f"{name}-plain", 318, TEMPLATE))
    row = served.gateway.watcher.snapshot.adapters[f"{name}-plain"]
    assert chat(served, f"{name}-plain") == served.expected("Q: why? A:", 16, seed=1, adapter=row.digest)


def test_a_template_holds_through_an_endpoint_and_a_canary(served: Any, name: str) -> None:
    endpoint = f"{name}-endpoint"
    served.load(f"{name}-bytes", with_template(served, name, 316, TEMPLATE))
    row = served.gateway.watcher.snapshot.adapters[f"{name}-bytes"]
    db.registry.create_endpoint(served.database, endpoint, "base")
    db.registry.register_adapter(
        served.database,
        id=name,
        digest=row.digest,
        base_model="base",
        store_uri=row.store_uri,
        config=row.config,
        size_bytes=row.bytes,
        endpoint=endpoint,
    )
    for start in (b"serve.start_canary(%s, 100)", b"serve.promote(%s)"):
        with served.database.transaction() as connection:
            connection.execute(b"SET LOCAL noria.override_reason = 'test'")
            connection.execute(b"SELECT " + start, [name])
        served.until(lambda: served.gateway.watcher.snapshot.epoch >= db.registry.epoch(served.database))
        assert chat(served, endpoint) == served.expected("Q: why? A:", 16, seed=1, adapter=row.digest)
