"""Folders from a hub: what is fetched, that it is pinned and goes on after a break, and every refusal."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from engine.errors import UnsupportedModel
from noria import models
from noria.errors import ModelSourceError
from noria.hub import HubSource, fetch, names_of
from noria.settings import ModelSettings

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "vocab_size": 8,
}
FILES: dict[str, bytes] = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "model-00001-of-00002.safetensors": bytes(range(256)) * 40_000,
    "model-00002-of-00002.safetensors": b"second",
    "model.safetensors.index.json": b"{}",
    "pytorch_model.bin": b"a pickle",
    "README.md": b"# read me",
    "onnx/model.onnx": b"another form",
}
LLAMA = HubSource("org/llama", None)
LARGE = "model-00001-of-00002.safetensors"


class Hub:
    """The few endpoints of a hub that a download needs, over one repository at one commit."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.ranges: list[str] = []
        self.refusal: tuple[int, str] | None = None
        self.cut: int | None = None
        self.lost: str | None = None
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if self.hub.refusal is not None:
            status, code = self.hub.refusal
            self._send(status, b"{}", {"X-Error-Code": code}, with_body)
        elif re.fullmatch(r"/api/models/org/llama(/revision/(v1|[0-9a-f]{40}))?", path):
            siblings = [{"rfilename": name} for name in self.hub.files]
            self._json({"id": "org/llama", "sha": COMMIT, "siblings": siblings}, with_body)
        elif path == f"/api/models/org/llama/tree/{COMMIT}":
            entries = [
                {"type": "file", "path": name, "size": len(data), "oid": f"{hash(data):040x}"[-40:]}
                for name, data in self.hub.files.items()
            ]
            self._json(entries, with_body)
        elif match := re.fullmatch(rf"/org/llama/resolve/{COMMIT}/(.*)", path):
            self._file(match[1], with_body)
        else:
            code = "RevisionNotFound" if "/revision/" in path else "RepoNotFound"
            self._send(404, b"{}", {"X-Error-Code": code}, with_body)

    def _file(self, name: str, with_body: bool) -> None:
        if name == self.hub.lost:
            self._send(418, b"{}", {}, with_body)
            return
        data = self.hub.files[name]
        if with_body:
            self.hub.asked.append(name)
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{name}"', "Accept-Ranges": "bytes"}
        if asked := self.headers.get("Range"):
            self.hub.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self._send(206, data[start:], headers, with_body)
        else:
            self._send(200, data, headers, with_body)

    def _json(self, value: Any, with_body: bool) -> None:
        headers = {"Content-Type": "application/json"}
        self._send(200, json.dumps(value).encode(), headers, with_body)

    def _send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            cut = self.hub.cut
            self.wfile.write(body[:cut])
            if cut is not None and cut < len(body):
                self.close_connection, self.hub.cut = True, None


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    made = Hub(dict(FILES))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("org/repo", ("org/repo", None)),
        ("Qwen/Qwen2.5-0.5B@v1.0", ("Qwen/Qwen2.5-0.5B", "v1.0")),
        (f"a/b@{COMMIT}", ("a/b", COMMIT)),
        ("/models/folder", None),
        ("./models/folder", None),
        ("a/b/c", None),
        ("model.gguf", None),
        ("a/b@", None),
    ],
)
def test_ids_are_told_from_paths(text: str, found: tuple[str, str | None] | None) -> None:
    source = HubSource.parse(text)
    assert found == (None if source is None else (source.repo, source.revision))
    assert source is None or str(source) == text


def test_only_what_serving_reads_is_fetched_and_the_commit_recorded(hub: Hub, tmp_path: Path) -> None:
    said: list[str] = []
    folder = fetch(HubSource("org/llama", "v1"), tmp_path / "m", said.append, hub.url)
    names = {path.name for path in folder.iterdir()}
    skipped = {"pytorch_model.bin", "README.md", "onnx/model.onnx"}
    assert names == FILES.keys() - skipped | {"noria_source.json"}
    assert all((folder / name).read_bytes() == FILES[name] for name in names - {"noria_source.json"})
    record = json.loads((folder / "noria_source.json").read_text())
    assert record == {"repo": "org/llama", "revision": "v1", "commit": COMMIT}
    assert said == ["fetching org/llama@v1 at 0123456789ab"]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(
    ("revision", "known"), [(None, ("main", COMMIT)), ("v1", ("v1", COMMIT)), (COMMIT, (COMMIT,))]
)
def test_a_fetched_model_has_the_names_that_adapters_give_it(
    hub: Hub, tmp_path: Path, revision: str | None, known: tuple[str, ...]
) -> None:
    folder = fetch(HubSource("org/llama", revision), tmp_path / "m", print, hub.url)
    assert names_of(folder) == ("org/llama", *(f"org/llama@{name}" for name in known))
    assert names_of(tmp_path) == ()


def test_a_folder_that_is_there_needs_no_network(hub: Hub, tmp_path: Path) -> None:
    fetch(LLAMA, tmp_path / "m", print, hub.url)
    hub.close()
    assert fetch(LLAMA, tmp_path / "m", print, "http://127.0.0.1:1") == tmp_path / "m"
    assert fetch(HubSource("org/llama", COMMIT), tmp_path / "m", print) == tmp_path / "m"
    for other in (HubSource("org/other", None), HubSource("org/llama", "v2")):
        with pytest.raises(
            ModelSourceError, match=r"m holds org/llama@main, not org/.*; remove it, or choose"
        ):
            fetch(other, tmp_path / "m", print)


def test_a_download_that_is_cut_off_goes_on(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1 << 20)
    hub.cut = 3 << 20
    folder = fetch(LLAMA, tmp_path / "m", print, hub.url)
    assert hub.ranges == ["bytes=3145728-"]
    assert (folder / LARGE).read_bytes() == FILES[LARGE]


def test_a_download_that_was_given_up_goes_on_with_what_is_missing(hub: Hub, tmp_path: Path) -> None:
    del hub.files[LARGE]
    hub.files["model-00003-of-00003.safetensors"] = b""
    hub.lost = "model-00003-of-00003.safetensors"
    with pytest.raises(ModelSourceError, match="org/llama cannot be fetched from the hub"):
        fetch(LLAMA, tmp_path / "m", print, hub.url)
    assert not (tmp_path / "m").exists()
    hub.lost = None
    fetch(LLAMA, tmp_path / "m", print, hub.url)
    assert [hub.asked.count(name) for name in ("config.json", "tokenizer.json")] == [1, 1]


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((403, "GatedRepo"), "org/llama is gated: accept its terms .* HF_TOKEN"),
        ((404, "RepoNotFound"), "org/llama is no folder here, and the hub shows no such repository"),
        ((404, "RevisionNotFound"), "org/llama has no revision"),
        ((418, ""), "org/llama cannot be fetched from the hub: .*418"),
    ],
)
def test_refusals_of_the_hub_are_one_line(
    hub: Hub, tmp_path: Path, refusal: tuple[int, str], message: str
) -> None:
    hub.refusal = refusal
    with pytest.raises(ModelSourceError, match=message) as caught:
        fetch(LLAMA, tmp_path / "m", print, hub.url)
    assert "\n" not in str(caught.value)


def test_no_network_and_offline_mode_are_told(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelSourceError, match=r"org/llama cannot be fetched from the hub: .*refused"):
        fetch(LLAMA, tmp_path / "m", print, "http://127.0.0.1:1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelSourceError, match="org/llama is not here yet, and HF_HUB_OFFLINE forbids"):
        fetch(LLAMA, tmp_path / "m", print, hub.url)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("model*", r"org/llama holds only .bin weights; safetensors \(model.safetensors\) are needed"),
        ("*model*", "org/llama holds no weights; safetensors"),
        ("tokenizer.json", "org/llama lacks tokenizer.json"),
    ],
)
def test_repositories_that_cannot_be_served_are_refused(
    hub: Hub, tmp_path: Path, left_out: str, message: str
) -> None:
    hub.files = {name: data for name, data in FILES.items() if not fnmatch(name, left_out)}
    with pytest.raises(ModelSourceError, match=message):
        fetch(LLAMA, tmp_path / "m", print, hub.url)
    assert hub.asked == []


def test_an_architecture_that_is_not_served_is_refused_before_its_weights(hub: Hub, tmp_path: Path) -> None:
    hub.files["config.json"] = json.dumps({**CONFIG, "architectures": ["BloomForCausalLM"]}).encode()
    with pytest.raises(UnsupportedModel, match="BloomForCausalLM is not supported"):
        fetch(LLAMA, tmp_path / "m", print, hub.url)
    assert not any(name.endswith(".safetensors") for name in hub.asked)


def test_a_model_of_the_settings_may_be_of_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "fetch", partial(fetch, endpoint=hub.url))
    folder = models.prepare(ModelSettings(id="mine", source="org/llama"), tmp_path, print)
    assert folder == tmp_path / "models" / "mine"
    assert (folder / "config.json").read_bytes() == FILES["config.json"]
