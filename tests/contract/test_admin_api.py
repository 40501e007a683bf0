"""Loading, replacing and unloading adapters through the admin API."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from lora.errors import NotFinite

PROMPT = "hello"
_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"adapter-{next(_names)}"


def text(served: Any, model: str, **options: Any) -> Any:
    with served.client as client:
        return client.completions.create(model=model, prompt=PROMPT, max_tokens=16, seed=1, **options)


def digest_of(served: Any, name: str) -> str:
    return str(served.gateway.watcher.snapshot.adapters[name].digest)


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_a_loaded_adapter_answers_on_every_replica_at_once(served: Any, name: str) -> None:
    answer = served.load(name, served.make_adapter(name, 1))
    assert (answer.status_code, answer.text) == (200, f"Success: LoRA adapter '{name}' added successfully.")
    digest = digest_of(served, name)
    assert served.gateway.watcher.snapshot.adapters[name].store_uri == f"store:{digest}"
    for replica in served.replicas:
        assert replica.worker.adapters()[digest]["state"] == "ready"
    made = text(served, name)
    assert made.choices[0].text == served.expected(PROMPT, 16, seed=1, adapter=digest)
    assert made.system_fingerprint == f"abababababab-{digest[7:19]}"


def test_base_and_adapter_alternating_never_share_a_prefix(served: Any, name: str) -> None:
    served.load(name, served.make_adapter(name, 2))
    digest = digest_of(served, name)
    texts = {
        None: served.expected(PROMPT, 16, seed=1),
        digest: served.expected(PROMPT, 16, seed=1, adapter=digest),
    }
    assert texts[None] != texts[digest]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda model: text(served, model).choices[0].text, ["base", name] * 20))
    assert made == [texts[None], texts[digest]] * 20


def test_a_name_twice_is_refused_unless_in_place(served: Any, name: str) -> None:
    served.load(name, served.make_adapter(name, 3))
    again = served.load(name, served.make_adapter(f"{name}-new", 4))
    assert (again.status_code, code(again)) == (400, "adapter_already_loaded")
    before = digest_of(served, name)
    assert served.load(name, f"{name}-new", load_inplace=True).status_code == 200
    after = digest_of(served, name)
    assert before != after
    made = text(served, name)
    assert made.choices[0].text == served.expected(PROMPT, 16, seed=1, adapter=after)
    assert made.usage.prompt_tokens_details.cached_tokens == 0
    for replica in served.replicas:
        served.until(lambda replica=replica: before not in replica.worker.adapters())


def test_eight_loads_of_one_name_make_one_adapter(served: Any, name: str) -> None:
    path = served.make_adapter(name, 5)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: served.load(name, path), range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7
    assert {code(answer) for answer in answers if answer.status_code == 400} == {"adapter_already_loaded"}


def test_a_stream_keeps_its_version_across_a_swap_and_an_unload(served: Any, name: str) -> None:
    served.load(name, served.make_adapter(name, 6))
    first = digest_of(served, name)
    seed = next(
        seed for seed in range(500) if len(served.expected(PROMPT, 200, seed=seed, adapter=first)) >= 150
    )
    with served.client as client:
        stream = client.completions.create(model=name, prompt=PROMPT, max_tokens=200, seed=seed, stream=True)
        parts = [next(stream).choices[0].text]
        served.load(name, served.make_adapter(f"{name}-new", 7), load_inplace=True)
        second = digest_of(served, name)
        newer = client.completions.create(model=name, prompt=PROMPT, max_tokens=16, seed=1)
        assert served.unload(name).status_code == 200
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model=name, prompt=PROMPT, max_tokens=16)
        parts += [chunk.choices[0].text for chunk in stream]
    assert "".join(parts) == served.expected(PROMPT, 200, seed=seed, adapter=first)
    assert newer.choices[0].text == served.expected(PROMPT, 16, seed=1, adapter=second)
    for replica in served.replicas:
        served.until(lambda replica=replica: not {first, second} & set(replica.worker.adapters()))


def test_an_unloaded_name_is_gone_and_may_come_back(served: Any, name: str) -> None:
    path = served.make_adapter(name, 8)
    served.load(name, path)
    answer = served.unload(name)
    assert (answer.status_code, answer.text) == (200, f"Success: LoRA adapter '{name}' removed successfully.")
    again = served.unload(name)
    assert (again.status_code, code(again)) == (404, "adapter_not_found")
    with served.client as client:
        assert name not in {model.id for model in client.models.list()}
    assert served.load(name, path).status_code == 200
    assert text(served, name).choices[0].text


def test_two_names_of_one_version_do_not_free_each_other(served: Any, name: str) -> None:
    path = served.make_adapter(name, 9)
    served.load(name, path)
    served.load(f"{name}-twin", path)
    served.unload(name)
    digest = digest_of(served, f"{name}-twin")
    assert all(digest in replica.worker.adapters() for replica in served.replicas)
    assert text(served, f"{name}-twin").choices[0].text == served.expected(PROMPT, 16, seed=1, adapter=digest)


@pytest.mark.parametrize("taken", ["base", "assistant"])
def test_names_of_others_are_refused(served: Any, taken: str, name: str) -> None:
    answer = served.load(taken, served.make_adapter(name, 10))
    assert (answer.status_code, code(answer)) == (400, "name_taken")


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("../secret", 400, "path_not_allowed"),
        ("/etc", 400, "path_not_allowed"),
        ("http://evil/adapter", 400, "path_not_allowed"),
        ("absent", 404, "adapter_not_found"),
        ("", 400, "invalid_value"),
    ],
)
def test_paths_outside_the_roots_are_refused(
    served: Any, name: str, path: str, status: int, reason: str
) -> None:
    answer = served.load(name, path)
    assert (answer.status_code, code(answer)) == (status, reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"r": 128}, "rank_too_large"),
        ({"use_qalora": True}, "unsupported_feature"),
        ({"use_dora": True}, "missing_tensors"),
        ({"base_model_name_or_path": "another"}, "wrong_base"),
        ({"target_modules": ["k_proj"]}, "unmatched_tensors"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused_and_nothing_is_listed(
    served: Any, name: str, fields: dict[str, Any], reason: str
) -> None:
    answer = served.load(name, served.make_adapter(name, 11, **fields))
    assert (answer.status_code, code(answer)) == (400, reason)
    assert name not in served.gateway.watcher.snapshot.adapters
    assert text(served, "base").choices[0].text == served.expected(PROMPT, 16, seed=1)


def test_another_base_may_be_forced_with_a_warning(served: Any, name: str) -> None:
    path = served.make_adapter(name, 12, base_model_name_or_path="another")
    answer = served.load(name, path, force=True)
    assert answer.status_code == 200
    assert "Warning: loaded by force" in answer.text
    digest = digest_of(served, name)
    assert text(served, name).choices[0].text == served.expected(PROMPT, 16, seed=1, adapter=digest)


def test_a_replica_that_cannot_load_it_leaves_nothing_listed(served: Any, name: str) -> None:
    served.replicas[1].loader.refusal = NotFinite("x.lora_A.weight", 3)
    try:
        answer = served.load(name, served.make_adapter(name, 13))
    finally:
        served.replicas[1].loader.refusal = None
    assert (answer.status_code, code(answer)) == (400, "not_finite")
    assert "3 values" in answer.json()["error"]["message"]
    assert name not in served.gateway.watcher.snapshot.adapters


def test_many_adapters_come_and_go_and_leave_nothing(served: Any, name: str) -> None:
    served.until(served.idle)
    resident = [len(replica.worker.adapters()) for replica in served.replicas]
    for number in range(12):
        served.load(f"{name}-{number}", served.make_adapter(f"{name}-{number}", 100 + number))
        served.unload(f"{name}-{number}")
    for replica, before in zip(served.replicas, resident, strict=True):
        served.until(lambda replica=replica, before=before: len(replica.worker.adapters()) <= before)


def test_the_admin_key_is_needed(served: Any) -> None:
    with served.http as http:
        for method, path in (
            ("POST", "/v1/load_lora_adapter"),
            ("POST", "/v1/unload_lora_adapter"),
            ("GET", "/v1/adapters"),
            ("GET", "/v1/adapters/some"),
            ("POST", "/v1/adapters/some/pin"),
            ("POST", "/v1/adapters/some/unpin"),
            ("POST", "/v1/adapters/some/check"),
        ):
            assert http.request(method, path, json={}).status_code == 401
            wrong = http.request(method, path, json={}, headers={"authorization": "Bearer x"})
            assert (wrong.status_code, code(wrong)) == (403, "admin_key_required")


def test_the_listing_shows_versions_and_residency(served: Any, name: str) -> None:
    served.load(name, served.make_adapter(name, 14))

    def states() -> list[str]:
        with served.http as http:
            rows = http.get("/v1/adapters", headers={"authorization": "Bearer root"}).json()["data"]
        (row,) = [row for row in rows if row["id"] == name]
        assert row["digest"] == digest_of(served, name)
        return [replica["state"] for replica in row["residency"]]

    served.until(lambda: states() == ["ready", "ready"])
