"""Log probabilities of the real model: those of transformers, and tokens whose bytes are the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from engine import Engine, EngineConfig, Request, SamplingParams, TokenEvent, Tokenizer, TokenLogprob

TOLERANCE = 2e-3
"""Of float32 logprobs, some tens below zero: the logits of the two differ by no more."""
QUESTIONS = [
    "What is the capital of France?",
    "Name a bakery 🥐.",
    "Wie spät ist es in Tokio?",
    "Count to ten.",
]


@pytest.fixture(scope="module")
def reference(smollm: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(smollm, dtype=torch.float32).eval()


def chat(tokenizer: Tokenizer, question: str) -> str:
    return tokenizer.render_chat([{"role": "user", "content": question}])


def collected(engine: Engine, requests: list[Request]) -> dict[str, list[TokenEvent]]:
    events: dict[str, list[TokenEvent]] = {request.id: [] for request in requests}
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for event in engine.step():
            events[event.request_id].append(event)
    return events


def check(found: TokenLogprob, want: torch.Tensor) -> None:
    """want: log-softmax [vocab] at the place of one token."""
    assert found.logprob == pytest.approx(float(want[found.token_id]), abs=TOLERANCE)
    assert [value for _, value in found.top] == pytest.approx(want.topk(5).values.tolist(), abs=TOLERANCE)
    assert [float(want[token]) for token, _ in found.top] == pytest.approx(
        [value for _, value in found.top], abs=TOLERANCE
    )
    assert found.rank is not None
    assert abs(found.rank - 1 - int((want > want[found.token_id]).sum())) <= found.rank / 50 + 1


def test_log_probabilities_equal_transformers(smollm: Path, reference: Any) -> None:
    """Of prompts and of what is sampled, some of it biased: what is told is what the model said."""
    tokenizer = Tokenizer(smollm)
    config = EngineConfig(
        model=smollm, dtype="float32", num_blocks=256, max_batched_tokens=64, max_num_seqs=8
    )
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.0, "seed": 1},
        {"temperature": 0.8, "seed": 2, "top_p": 0.9, "presence_penalty": 1.0},
        {"temperature": 1.0, "seed": 3, "logit_bias": ((30, 9.0), (2, -100.0))},
    ]
    requests = [
        Request(
            question,
            tuple(tokenizer.encode(chat(tokenizer, question), add_special_tokens=False)),
            SamplingParams(max_tokens=24, logprobs=5, prompt_logprobs=5, ignore_eos=True, **kind),
        )
        for question, kind in zip(QUESTIONS, kinds, strict=True)
    ]
    found = collected(Engine(config), requests)
    for request in requests:
        events = found[request.id]
        of_prompt = events[0].prompt_logprobs
        assert of_prompt is not None
        scores = [*of_prompt, *(score for event in events for score in event.logprobs or ())]
        tokens = [*request.prompt, *(token for event in events for token in event.token_ids)]
        assert [score.token_id for score in scores] == tokens[1:]
        with torch.no_grad():
            want = reference(torch.tensor([tokens])).logits[0].log_softmax(-1)
        for place, score in enumerate(scores):
            check(score, want[place])


def answered(platform: Any, stream: bool, **options: Any) -> tuple[str, bytes]:
    """Text of a chat in Japanese, two or three tokens a character, and the bytes of its tokens joined."""
    asked: dict[str, Any] = {
        "model": "smollm2-135m",
        "messages": [{"role": "user", "content": "Translate 'good morning' into Japanese."}],
        "temperature": 0,
        "logprobs": True,
        **options,
    }
    with platform.client as client:
        if stream:
            chunks = client.chat.completions.create(**asked, stream=True)
            choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
            text = "".join(choice.delta.content or "" for choice in choices)
        else:
            choices = client.chat.completions.create(**asked).choices
            text = choices[0].message.content
    told = [choice.logprobs.content for choice in choices if choice.logprobs is not None]
    return text, b"".join(bytes(entry.bytes) for entries in told for entry in entries or ())


@pytest.mark.parametrize("stream", [False, True])
def test_the_bytes_of_tokens_joined_are_the_text(platform: Any, stream: bool) -> None:
    text, joined = answered(platform, stream, max_tokens=29)
    assert len(text) < 20 < len(joined)
    assert joined == text.encode()


@pytest.mark.parametrize("stream", [False, True])
def test_behind_the_text_come_the_bytes_that_a_stop_string_cut_off(platform: Any, stream: bool) -> None:
    text, joined = answered(platform, stream, max_tokens=30, stop=["くな"])
    assert text
    assert joined == (text + "くな").encode()


@pytest.mark.parametrize("stream", [False, True])
def test_a_character_cut_at_max_tokens_keeps_its_bytes(platform: Any, stream: bool) -> None:
    assert answered(platform, stream, max_tokens=1) == ("\N{REPLACEMENT CHARACTER}", b"\xe3\x82")
