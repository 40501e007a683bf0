"""Many adapters, bad adapters and long streams on one engine: it answers right and forgets what went."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.conftest import write_adapter
from tests.e2e.refused_adapters import REFUSED, write_small

BASE = "smollm2-135m"
PROMPT = "The ferryman looked at the river and"
TOKENS = 8


def resident(platform: Any) -> dict[str, int]:
    """digest -> bytes in the memory of the one replica."""
    places = [(row["digest"], row["residency"][0]) for row in platform.adapters().values()]
    return {digest: place["bytes"] for digest, place in places if place["state"] not in ("store", "disk")}


def names(platform: Any) -> set[str]:
    return {card["id"] for card in httpx.get(f"{platform.url}/v1/models", timeout=30).json()["data"]}


@pytest.fixture(scope="module")
def base_text(platform: Any) -> str:
    return str(platform.text(BASE, PROMPT, TOKENS))


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_folder_with_something_wrong_is_refused_and_the_base_answers(
    platform: Any, base_text: str, case: str
) -> None:
    folder = platform.data / "adapters" / f"refused-{list(REFUSED).index(case)}"
    write_small(folder, BASE)
    wrong = REFUSED[case]
    wrong.spoil(folder)
    answer = platform.admin("load", lora_name="refused", lora_path=folder.name)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (wrong.status, wrong.code), error
    assert all(word in error["message"] for word in wrong.words), error
    assert "refused" not in names(platform)
    assert platform.text(BASE, PROMPT, TOKENS) == base_text
    with pytest.raises(openai.NotFoundError):
        platform.text("refused", PROMPT, TOKENS)


@pytest.mark.parametrize("path", ["../store", "/etc", "leaving", "https://hub/adapter", "seed-1/../../store"])
def test_a_path_that_leaves_the_roots_is_refused_without_a_word_on_what_is_there(
    platform: Any, path: str
) -> None:
    link = Path(platform.data) / "adapters" / "leaving"
    if not link.is_symlink():
        link.symlink_to("/etc")
    answer = platform.admin("load", lora_name="escaped", lora_path=path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "path_not_allowed")
    assert "exist" not in answer.json()["error"]["message"]


def test_more_adapters_than_slots_each_answer_as_when_alone(
    platform: Any, pool: ThreadPoolExecutor, base_text: str
) -> None:
    wanted = {BASE: base_text}
    for seed in range(100, 110):
        platform.load(f"many-{seed}", seed)
        wanted[f"many-{seed}"] = platform.text(f"many-{seed}", PROMPT, TOKENS)
    assert len(set(wanted.values())) > 8
    asked = list(wanted) * 3
    assert list(pool.map(lambda name: platform.text(name, PROMPT, TOKENS), asked)) == [
        wanted[n] for n in asked
    ]
    for seed in range(100, 110):
        assert platform.admin("unload", lora_name=f"many-{seed}").status_code == 200


def test_names_that_come_and_go_leave_no_memory_taken(platform: Any) -> None:
    platform.until(lambda: not any(row["residency"][0]["pins"] for row in platform.adapters().values()))
    before, listed = resident(platform), names(platform)
    for number in range(6):
        platform.load(f"passing-{number}", 120 + number)
        assert platform.text(f"passing-{number}", PROMPT, 2)
        assert platform.admin("unload", lora_name=f"passing-{number}").status_code == 200
    for number in range(6):
        platform.load("passing", 120 + number, load_inplace=True)
    assert names(platform) == listed | {"passing"}
    platform.admin("unload", lora_name="passing")
    assert names(platform) == listed
    platform.until(lambda: resident(platform).keys() <= before.keys(), 30)


def test_a_large_adapter_loads_beside_running_streams(
    platform: Any, pool: ThreadPoolExecutor, base_text: str
) -> None:
    folder = platform.data / "adapters" / "large"
    write_adapter(folder, platform.model_folder, 130, rank=64)
    platform.load("beside", 131)
    begun = threading.Barrier(9)

    def stream(number: int) -> str:
        model = (BASE, "beside")[number % 2]
        with platform.client as client:
            chunks = client.completions.create(
                model=model,
                prompt=PROMPT,
                max_tokens=40,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            parts = [next(chunks).choices[0].text]
            begun.wait(120)
            return "".join([*parts, *(chunk.choices[0].text for chunk in chunks)])

    streams = [pool.submit(stream, number) for number in range(8)]
    begun.wait(120)
    assert platform.admin("load", lora_name="large", lora_path="large").status_code == 200
    large = platform.text("large", PROMPT, TOKENS)
    texts = [future.result(120) for future in streams]
    assert len(set(texts)) == 2
    assert texts[0].startswith(base_text)
    assert large not in (base_text, texts[1][: len(large)])
    platform.admin("unload", lora_name="large")


def test_a_self_check_compares_the_replica_with_merged_weights(platform: Any) -> None:
    platform.load("checked", 142)
    headers = {"authorization": "Bearer root"}
    answer = httpx.post(f"{platform.url}/v1/adapters/checked/check", headers=headers, timeout=120)
    told = answer.json()
    assert (answer.status_code, told["object"], told["id"]) == (200, "adapter.check", "checked"), told
    assert told["passed"] is True
    assert told["mean_difference"] < told["tolerance"] < told["effect"]
    platform.admin("unload", lora_name="checked")


def test_a_salt_parts_the_prompts_of_one_adapter_too(platform: Any) -> None:
    platform.load("salted", 140)
    prompt = "The water wheel turns. " * 12

    def cached(salt: str) -> int:
        answer = platform.ask("salted", prompt, 2, extra_body={"cache_salt": salt})
        return int(answer.usage.prompt_tokens_details.cached_tokens)

    assert [cached("a"), cached("b")] == [0, 0]
    assert cached("a") > 16


def test_a_client_that_leaves_an_adapters_stream_frees_it(platform: Any) -> None:
    platform.load("left", 141)
    with platform.client as client:
        stream = client.completions.create(
            model="left", prompt=PROMPT, max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        next(stream)
        stream.close()
    platform.until(lambda: platform.adapters()["left"]["residency"][0]["pins"] == 0, 30)
    digest = platform.adapters()["left"]["digest"]
    platform.admin("unload", lora_name="left")
    platform.until(lambda: digest not in resident(platform), 30)
