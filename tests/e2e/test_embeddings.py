"""Vectors from the whole platform: a small language model whose last tokens are them, an adapter, clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
import transformers
from langchain_openai import OpenAIEmbeddings

from tests.e2e.conftest import BASE, Platform, started

SETTINGS = """
data = "{data}"
[server]
port = {port}
admin_key = "{key}"
[store]
adapter_roots = ["{data}/adapters"]
[[models]]
id = "{base}"
source = "{source}"
task = "embed"
dtype = "float32"
max_model_len = 512
threads = 2
"""
TEXTS = ["The dog runs away.", "Un chien court.", "def main() -> None: ..."]
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


@pytest.fixture(scope="module")
def vectors(smollm: Path) -> Iterator[Platform]:
    with started(SETTINGS, smollm) as made:
        yield made


def embedded(platform: Platform, model: str) -> torch.Tensor:
    with platform.client as client:
        answer = client.embeddings.create(model=model, input=TEXTS)
    return torch.tensor([item.embedding for item in answer.data])


def test_vectors_are_the_last_states_of_the_model(vectors: Any, smollm: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm)
    model = transformers.AutoModel.from_pretrained(smollm, dtype=torch.float32).eval()
    with torch.no_grad():
        states = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, -1] for text in TEXTS]
    expected = torch.nn.functional.normalize(torch.stack(states), dim=-1)
    torch.testing.assert_close(embedded(vectors, BASE), expected, **CLOSE)


def test_langchain_works_unchanged(vectors: Any) -> None:
    client = OpenAIEmbeddings(
        model=BASE, base_url=f"{vectors.url}/v1", api_key="any", check_embedding_ctx_length=False
    )
    assert torch.equal(torch.tensor(client.embed_documents(TEXTS)), embedded(vectors, BASE))


def test_an_adapter_answers_by_its_name_until_it_is_unloaded(vectors: Any) -> None:
    vectors.load("tuned", seed=31)
    base, tuned = embedded(vectors, BASE), embedded(vectors, "tuned")
    assert ((base * tuned).sum(-1) < 0.99).all()
    assert [row["state"] for row in vectors.adapters()["tuned"]["residency"]] == ["ready"]
    assert vectors.admin("unload", lora_name="tuned").status_code == 200
    with pytest.raises(openai.NotFoundError):
        embedded(vectors, "tuned")


def test_a_chat_is_refused_with_what_the_model_is_for(vectors: Any) -> None:
    messages: Any = [{"role": "user", "content": "hello"}]
    with vectors.client as client, pytest.raises(openai.BadRequestError, match="makes vectors") as caught:
        client.chat.completions.create(model=BASE, messages=messages)
    assert caught.value.code == "wrong_task"


def test_a_replica_that_dies_is_replaced(vectors: Any) -> None:
    before = embedded(vectors, BASE)
    vectors.kill(f"Engine-{BASE}")
    vectors.until(lambda: not vectors.healthy())
    vectors.until(vectors.healthy)
    assert torch.equal(embedded(vectors, BASE), before)
