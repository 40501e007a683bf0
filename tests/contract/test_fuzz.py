"""2,000 malformed bodies while good streams run: no 5xx, the good texts are right, nothing is left behind."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.contract.conftest import ADMIN

BODIES = 2000
MESSAGES = [{"role": "user", "content": "hi"}]
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "base",
        "messages": MESSAGES,
        "max_tokens": 2,
        "stop": ["a"],
        "tools": [{"type": "function", "function": FUNCTION}],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "/v1/completions": {
        "model": "base",
        "prompt": ["go", "on"],
        "max_tokens": 2,
        "n": 2,
        "logit_bias": {"5": 1},
        "temperature": 0.5,
    },
    "/v1/responses": {"model": "base", "input": "hi", "max_output_tokens": 2, "store": False},
    "/v1/embeddings": {"model": "base", "input": ["a", [1, 2]], "encoding_format": "float"},
    "/v1/tokenize": {"model": "base", "prompt": "hi"},
    "/v1/detokenize": {"model": "base", "tokens": [1, 2]},
    "/v1/feedback": {"request_id": "0199e5a0-0000-7000-8000-000000000000", "kind": "thumbs", "value": 1},
    "/v1/load_lora_adapter": {"lora_name": "x", "lora_path": "nowhere"},
    "/v1/unload_lora_adapter": {"lora_name": "x"},
    "/v1/batches": {"input_file_id": "file-x", "endpoint": "/v1/completions", "completion_window": "24h"},
}
KINDS = ["application/json"] * 12 + ["text/plain", "", "application/json; charset=x", "multipart/form-data"]


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 0, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, float("inf"), float("nan")])
    | st.text(max_size=20)
    | st.sampled_from(["\ud800", "\x00", "a" * 5000, "", "base", "{", "[["])
    | st.integers(1, 300).map(nested)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, bytes, str]:
    """A path, a valid body of it that was damaged in one to three places, and a content type."""
    path = draw(st.sampled_from(sorted(VALID)))
    body = json.loads(json.dumps(VALID[path]))
    for _ in range(draw(st.integers(1, 3))):
        place: Any = body
        while True:
            key = draw(
                st.sampled_from([*place, "more"]) if isinstance(place, dict) else st.integers(0, len(place))
            )
            inner = place.get(key) if isinstance(place, dict) else place[key] if key < len(place) else None
            if not isinstance(inner, dict | list) or draw(st.booleans()):
                break
            place = inner
        _change(draw, place, key)
    raw = json.dumps(body).encode()
    if draw(st.integers(0, 3)) == 0:
        cut = draw(st.integers(0, len(raw)))
        raw = raw[:cut] + draw(st.binary(max_size=3)) + raw[cut + draw(st.integers(0, len(raw))) :]
    return path, raw, draw(st.sampled_from(KINDS))


def _change(draw: st.DrawFn, place: Any, key: Any) -> None:
    value = draw(VALUES)
    if isinstance(place, dict):
        place[key] = value
    else:
        place[key : key + 1] = [value]


class GoodStreams:
    """A client whose requests are in order, and who knows their answers."""

    def __init__(self, served: Any) -> None:
        self._served = served
        self._done = threading.Event()
        self.right = 0
        self.wrong: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "GoodStreams":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        with self._served.client as client:
            while not self._done.is_set():
                seed = self.right % 20
                chunks = client.completions.create(
                    model="base", prompt="a good one", max_tokens=24, seed=seed, stream=True
                )
                text = "".join(chunk.choices[0].text for chunk in chunks)
                if text == self._served.expected("a good one", 24, seed=seed):
                    self.right += 1
                else:
                    self.wrong.append(text)


@pytest.fixture
def http(served: Any) -> Iterator[httpx.Client]:
    with served.http as client:
        yield client


def test_malformed_bodies_harm_nobody(served: Any, http: httpx.Client) -> None:
    served.until(served.idle)
    met: dict[int, int] = {}

    @given(bodies())
    @settings(
        max_examples=BODIES,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(sent: tuple[str, bytes, str]) -> None:
        path, raw, kind = sent
        answer = http.post(path, content=raw, headers={**ADMIN, "content-type": kind})
        met[answer.status_code] = met.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

    with GoodStreams(served) as good:
        send()
    assert not good.wrong
    assert good.right
    assert sum(met.values()) >= BODIES
    assert met[400] > BODIES // 2
    served.until(served.idle)
