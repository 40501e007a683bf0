"""The prompt files: enough of them, all different, and parted by hash with nothing on both sides."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from noria.demo import sizes
from noria.demo.prompts import Prompt, held_out_prompts, split, traffic_prompts

ROOT = Path(__file__).parents[3]


def test_the_held_out_prompts_are_those_with_the_smallest_hashes() -> None:
    traffic, held_out = traffic_prompts(), held_out_prompts()
    expected_traffic, expected_held_out = split([*traffic, *held_out], sizes.HELD_OUT)
    assert {prompt.id for prompt in held_out} == {prompt.id for prompt in expected_held_out}
    assert {prompt.id for prompt in traffic} == {prompt.id for prompt in expected_traffic}


def test_every_held_out_hash_is_below_every_traffic_hash() -> None:
    def hashes(path: str) -> list[str]:
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        return [hashlib.sha256(json.loads(line)["prompt"].encode()).hexdigest() for line in lines]

    assert max(hashes("evals/suites/brevity/cases.jsonl")) < min(hashes("noria/demo/prompts.jsonl"))


def test_the_two_files_share_no_prompt() -> None:
    traffic, held_out = traffic_prompts(), held_out_prompts()
    assert len(held_out) == sizes.HELD_OUT
    assert len(traffic) >= 300
    assert not {prompt.text.casefold() for prompt in traffic} & {
        prompt.text.casefold() for prompt in held_out
    }
    assert len({prompt.id for prompt in (*traffic, *held_out)}) == len(traffic) + len(held_out)


def test_the_prompts_are_varied() -> None:
    prompts = (*traffic_prompts(), *held_out_prompts())
    assert len({prompt.text.casefold() for prompt in prompts}) == len(prompts)
    assert len({" ".join(prompt.text.split()[:4]).casefold() for prompt in prompts}) > len(prompts) * 0.8
    words = sorted(len(prompt.text.split()) for prompt in prompts)
    assert words[0] < 6
    assert words[-1] > 20


def test_the_split_does_not_depend_on_the_order_of_the_prompts() -> None:
    prompts = [Prompt(str(number), f"prompt {number}") for number in range(20)]
    assert split(prompts, 5) == split(reversed(prompts), 5)


def test_the_traffic_fits_the_file() -> None:
    assert len(traffic_prompts()) >= sizes.REPLAY_PROMPTS
    assert len(traffic_prompts()) >= sizes.CANARY_READERS + sizes.CANARY_RETURNING
