"""Adapters are loaded, replaced and unloaded while streams run: no failure, no mixture, nothing stale."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

PROMPT = "Once upon a time there was a miller who"
LONG = " ".join(f"Entry {number}: the wheel turned {number * 7 % 13} times." for number in range(24))
TOKENS = 16


@pytest.fixture(scope="module")
def references(platform: Any) -> dict[str, dict[str, str]]:
    """Prompt -> what answers it -> its text, each version asked alone under a name of its own."""
    for seed in (11, 12):
        platform.load(f"reference-{seed}", seed)
    names = {"base": "smollm2-135m", "one": "reference-11", "two": "reference-12"}
    made = {
        prompt: {label: platform.text(name, prompt, TOKENS) for label, name in names.items()}
        for prompt in (PROMPT, LONG)
    }
    assert all(len(set(texts.values())) == 3 for texts in made.values())
    return made


def test_a_swap_under_load_fails_nobody_and_mixes_nothing(
    platform: Any, pool: ThreadPoolExecutor, references: dict[str, dict[str, str]]
) -> None:
    platform.load("swapped", 11)
    versions = {
        platform.adapters()[f"reference-{seed}"]["digest"][7:19]: label
        for seed, label in ((11, "one"), (12, "two"))
    }
    done = threading.Event()

    def stream() -> list[tuple[str, str]]:
        seen = []
        while not done.is_set():
            with platform.client as client:
                chunks = list(
                    client.completions.create(
                        model="swapped", prompt=PROMPT, max_tokens=TOKENS, temperature=0, stream=True
                    )
                )
            (print_,) = {chunk.system_fingerprint for chunk in chunks}
            seen.append(
                (versions[print_.partition("-")[2]], "".join(chunk.choices[0].text for chunk in chunks))
            )
        return seen

    running = [pool.submit(stream) for _ in range(6)]
    for seed in (12, 11, 12):
        platform.load("swapped", seed, load_inplace=True)
        platform.text("swapped", PROMPT, TOKENS)
    done.set()
    seen = [item for future in running for item in future.result(120)]
    assert {label for label, _ in seen} == {"one", "two"}
    assert all(text == references[PROMPT][label] for label, text in seen)


def test_nothing_stale_is_read_after_a_swap(platform: Any, references: dict[str, dict[str, str]]) -> None:
    platform.load("renewed", 11)
    assert platform.text("renewed", LONG, TOKENS) == references[LONG]["one"]
    platform.load("renewed", 12, load_inplace=True)
    assert platform.text("renewed", LONG, TOKENS) == references[LONG]["two"]
    platform.load("renewed", 11, load_inplace=True)
    assert platform.text("renewed", LONG, TOKENS) == references[LONG]["one"]


def test_a_version_never_seen_finds_nothing_cached_under_its_old_name(platform: Any) -> None:
    platform.load("fresh", 21)
    platform.text("fresh", LONG, 2)
    again = platform.ask("fresh", LONG, 2)
    assert again.usage.prompt_tokens_details.cached_tokens > 0
    platform.load("fresh", 22, load_inplace=True)
    after = platform.ask("fresh", LONG, 2)
    assert after.usage.prompt_tokens_details.cached_tokens == 0


def test_base_and_adapter_alternating_equal_their_references(
    platform: Any, pool: ThreadPoolExecutor, references: dict[str, dict[str, str]]
) -> None:
    platform.load("alternating", 11)
    names = {"base": "smollm2-135m", "one": "alternating"}
    for label in ("base", "one") * 10:
        assert platform.text(names[label], LONG, TOKENS) == references[LONG][label]
    labels = ["base", "one"] * 6
    texts = list(pool.map(lambda label: platform.text(names[label], LONG, TOKENS), labels))
    assert texts == [references[LONG][label] for label in labels]


def test_streams_outlive_a_swap_and_an_unload(platform: Any, references: dict[str, dict[str, str]]) -> None:
    platform.load("leaving", 11)
    alone = platform.ask("leaving", PROMPT, 60, extra_body={"ignore_eos": True}).choices[0].text
    with platform.client as client:
        stream = client.completions.create(
            model="leaving",
            prompt=PROMPT,
            max_tokens=60,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        parts = [next(stream).choices[0].text]
        platform.load("leaving", 12, load_inplace=True)
        assert platform.text("leaving", PROMPT, TOKENS) == references[PROMPT]["two"]
        assert platform.admin("unload", lora_name="leaving").status_code == 200
        with pytest.raises(openai.NotFoundError):
            platform.text("leaving", PROMPT)
        platform.load("bystander", 13)
        parts += [chunk.choices[0].text for chunk in stream]
    assert "".join(parts) == alone
