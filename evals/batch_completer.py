"""A Completer over any server with OpenAI's files and batches: the questions go up as one file.

So they wait behind everything that somebody waits for, and go on where a gateway dies.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from evals.completer import Completion, Conversation, Done
from evals.errors import CompletionFailed

if TYPE_CHECKING:
    from openai.types import Batch

ENDPOINT: Final = "/v1/chat/completions"
LOOK_S = 0.5
_UNDER_WAY = ("validating", "in_progress", "finalizing", "cancelling")


class BatchCompleter:
    """`headers` go with the request that creates a batch, and hold for all its lines.

    Evaluation traffic says so with `x-noria-source: eval`, which keeps it out of every training set.
    `timeout_s` bounds one try of one call; the client tries five times more by itself.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "none",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        from openai import OpenAI

        self._client = OpenAI(
            base_url=base_url,
            api_key=api_key,
            default_headers=dict(headers or {}),
            timeout=timeout_s,
            max_retries=5,
        )

    def complete(
        self,
        conversations: Sequence[Conversation],
        *,
        model: str,
        max_tokens: int,
        temperature: float,
        done: Done,
    ) -> list[Completion | CompletionFailed]:
        """Where the batch as a whole fails, that is the reason of every one."""
        from openai import OpenAIError

        asked = {"model": model, "max_tokens": max_tokens, "temperature": temperature}
        lines = [_line(number, asked, messages) for number, messages in enumerate(conversations)]
        try:
            answers = self._answers("".join(lines).encode(), done)
        except OpenAIError as error:
            return [CompletionFailed(f"{type(error).__name__}: {error}") for _ in lines]
        except CompletionFailed as error:
            return [error for _ in lines]
        none = CompletionFailed("the batch ended without an answer")
        return [answers.get(str(number), none) for number in range(len(lines))]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _answers(self, content: bytes, done: Done) -> dict[str, Completion | CompletionFailed]:
        """By custom id. The files are removed; a batch that is not waited for is cancelled."""
        files = [self._client.files.create(file=("questions.jsonl", content), purpose="batch").id]
        try:
            batch = self._client.batches.create(
                input_file_id=files[0], endpoint=ENDPOINT, completion_window="24h"
            )
            batch = self._ended(batch, done)
            files += [each for each in (batch.output_file_id, batch.error_file_id) if each is not None]
            if batch.status == "failed":
                raise CompletionFailed(f"the batch failed: {_first_problem(batch)}")
            read = (self._client.files.content(each).read() for each in files[1:])
            made = [json.loads(line) for content in read for line in content.splitlines()]
            return {each["custom_id"]: _answer(each) for each in made}
        finally:
            self._remove(files)

    def _ended(self, batch: Batch, done: Done) -> Batch:
        try:
            while batch.status in _UNDER_WAY:
                time.sleep(LOOK_S)
                batch = self._client.batches.retrieve(batch.id)
                if counts := batch.request_counts:
                    done(counts.completed + counts.failed)
        except BaseException:  # an interrupt above all: nobody would read the answers
            self._cancel(batch.id)
            raise
        return batch

    def _cancel(self, batch_id: str) -> None:
        from openai import OpenAIError

        with suppress(OpenAIError):
            self._client.batches.cancel(batch_id)

    def _remove(self, files: Sequence[str]) -> None:
        from openai import OpenAIError

        with suppress(OpenAIError):  # they expire by themselves, or a person removes them
            for each in files:
                self._client.files.delete(each)


def _line(number: int, asked: Mapping[str, Any], messages: Conversation) -> str:
    body = {**asked, "messages": list(messages)}
    line = {"custom_id": str(number), "method": "POST", "url": ENDPOINT, "body": body}
    return json.dumps(line, ensure_ascii=False) + "\n"


def _answer(line: Mapping[str, Any]) -> Completion | CompletionFailed:
    response = line["response"]
    if response is None:
        return CompletionFailed(line["error"]["message"])
    body = response["body"]
    if response["status_code"] != 200:
        return CompletionFailed(f"HTTP {response['status_code']}: {body['error']['message']}")
    if not body.get("choices"):
        return CompletionFailed("the endpoint answered without a choice")
    choice, usage = body["choices"][0], body.get("usage") or {}
    return Completion(
        text=choice["message"]["content"] or "",
        finish_reason=choice["finish_reason"],
        completion_tokens=usage.get("completion_tokens", 0),
        served_by=body.get("system_fingerprint"),
    )


def _first_problem(batch: Batch) -> str:
    problems = (batch.errors.data if batch.errors else None) or []
    return (problems[0].message or "without a reason") if problems else "without a reason"
