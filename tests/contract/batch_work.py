"""What the tests of batches have in common: lines, a batch on its way, and what came of it."""

from __future__ import annotations

import json
from typing import Any

import openai

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}


def text_line(custom_id: str, prompt: str = "hi", **body: Any) -> dict[str, Any]:
    asked = {"model": "base", "prompt": prompt, "max_tokens": 4, "seed": 1, **body}
    return {"custom_id": custom_id, "method": "POST", "url": TEXT, "body": asked}


def start(client: openai.OpenAI, lines: list[Any], endpoint: Any = TEXT, **options: Any) -> Any:
    content = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    file = client.files.create(file=("in.jsonl", content.encode()), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **options)


def ended(served: Any, client: openai.OpenAI, batch_id: str) -> Any:
    return served.until(
        lambda: batch if (batch := client.batches.retrieve(batch_id)).status in ENDED else None
    )


def lines_of(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    return [json.loads(line) for line in client.files.content(file_id).read().splitlines()]


def change(served: Any, batch_id: str, what: str) -> None:
    with served.database.transaction() as connection:
        connection.execute(f"UPDATE serve.batch SET {what} WHERE id = '{batch_id}'".encode())


def counts(batch: Any) -> tuple[int, int, int]:
    found = batch.request_counts
    return found.total, found.completed, found.failed
