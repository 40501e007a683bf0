"""kill -9 in the middle of a batch: it goes on by itself, and each line is answered once."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx
import openai
import pytest

URL: Final = "/v1/completions"
LINES = 60
FAILURES = (openai.OpenAIError, httpx.HTTPError)


def create(platform: Any) -> str:
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": URL,
            "body": {
                "model": "assistant",
                "prompt": f"Number {number}:",
                "max_tokens": 24,
                "ignore_eos": True,
            },
        }
        for number in range(LINES)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    with platform.client as client:
        file = client.files.create(file=("lines.jsonl", content), purpose="batch")
        made = client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")
    return str(made.id)


def show(platform: Any, batch_id: str) -> Any:
    """The batch; None while no gateway answers."""
    try:
        with platform.client as client:
            return client.batches.retrieve(batch_id)
    except FAILURES:
        return None


def under_way(platform: Any, batch_id: str, answered: int) -> bool:
    batch = show(platform, batch_id)
    assert batch is None or batch.status in ("validating", "in_progress"), batch
    return batch is not None and batch.request_counts.completed >= answered


def ended(platform: Any, batch_id: str) -> Any:
    return platform.until(
        lambda: (
            batch
            if (batch := show(platform, batch_id)) is not None
            and batch.status not in ("validating", "in_progress", "finalizing")
            else None
        )
    )


@pytest.mark.parametrize("deployment", ["Gateway", "Engine-smollm2-135m"])
def test_a_kill_in_the_middle_of_a_batch_loses_and_doubles_no_line(platform: Any, deployment: str) -> None:
    batch_id = create(platform)
    platform.until(lambda: under_way(platform, batch_id, 5))
    old = platform.pid(deployment)
    platform.kill(deployment)
    platform.until(lambda: platform.pid(deployment) != old and platform.healthy())
    batch = ended(platform, batch_id)
    assert (batch.status, batch.error_file_id) == ("completed", None)
    assert (batch.request_counts.total, batch.request_counts.completed) == (LINES, LINES)
    with platform.client as client:
        answers = [
            json.loads(line) for line in client.files.content(batch.output_file_id).read().splitlines()
        ]
    assert sorted(each["custom_id"] for each in answers) == sorted(
        f"line-{number}" for number in range(LINES)
    )
    assert {each["response"]["body"]["usage"]["completion_tokens"] for each in answers} == {24}


def test_a_batch_goes_on_when_the_database_comes_back(platform: Any) -> None:
    batch_id = create(platform)
    platform.until(lambda: under_way(platform, batch_id, 5))
    with platform.database_away():
        assert show(platform, batch_id) is None
    platform.until(platform.healthy)
    batch = ended(platform, batch_id)
    assert (batch.status, batch.request_counts.completed) == ("completed", LINES)
