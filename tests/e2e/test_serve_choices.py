"""Scores and beams over HTTP against transformers on the same weights."""

from typing import Any

import pytest
import torch
import transformers

PROMPT = "The capital of France is Paris. Il fait très beau 🙂 in"


@pytest.fixture(scope="module")
def theirs(platform: Any) -> tuple[Any, Any]:
    """transformers' tokenizer and model, in float32 as the platform's."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(platform.model_folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(platform.model_folder, dtype=torch.float32)
    return tokenizer, model.eval()


@torch.no_grad()
def test_echoed_log_probabilities_are_those_of_transformers(platform: Any, theirs: tuple[Any, Any]) -> None:
    tokenizer, model = theirs
    with platform.client as client:
        answer = client.completions.create(
            model="smollm2-135m",
            prompt=PROMPT,
            echo=True,
            logprobs=3,
            max_tokens=6,
            temperature=0,
            extra_body={"return_token_ids": True, "prompt_logprobs": 0},
        )
    choice = answer.choices[0]
    ids = [*choice.prompt_token_ids, *choice.token_ids]
    assert choice.prompt_token_ids == tokenizer(PROMPT).input_ids
    assert choice.text == tokenizer.decode(ids)
    expected = model(torch.tensor([ids])).logits[0].log_softmax(dim=-1)
    shown = choice.logprobs
    assert shown.token_logprobs[0] is None
    own = expected[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(shown.token_logprobs[1:]), own, atol=2e-3, rtol=0)
    best = expected[:-1].topk(3).values
    found = torch.tensor([sorted(top.values(), reverse=True)[:3] for top in shown.top_logprobs[1:]])
    torch.testing.assert_close(found, best, atol=2e-3, rtol=0)
    pieces = zip(shown.text_offset, [*shown.text_offset[1:], len(choice.text)], strict=True)
    assert "".join(choice.text[start:end] for start, end in pieces) == choice.text
    ranks = [next(iter(entry.values()))["rank"] for entry in choice.prompt_logprobs[1:]]
    likelier = (expected[: len(ranks)] > own[: len(ranks), None]).sum(dim=-1)
    assert ranks == (likelier + 1).tolist()


@torch.no_grad()
def test_beams_are_those_of_transformers(platform: Any, theirs: tuple[Any, Any]) -> None:
    tokenizer, model = theirs
    asked = tokenizer(PROMPT, return_tensors="pt")
    made = model.generate(
        **asked, num_beams=4, num_return_sequences=3, max_new_tokens=10, do_sample=False, length_penalty=0.5
    )
    expected = [tokenizer.decode(row[asked.input_ids.shape[1] :], skip_special_tokens=True) for row in made]
    with platform.client as client:
        answer = client.completions.create(
            model="smollm2-135m",
            prompt=PROMPT,
            n=3,
            max_tokens=10,
            extra_body={"use_beam_search": True, "best_of": 4, "length_penalty": 0.5},
        )
    assert [choice.text for choice in answer.choices] == expected
