"""`noria bench` from its words to its table and its file, against a small server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.errors import BadLoad, NoFigures
from noria.cli import app

MODEL = "m"


class Completions(BaseHTTPRequestHandler):
    """Streams as many tokens as it is asked for; knows one model."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200 if body["model"] == MODEL else 404)
        self.end_headers()
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
        events = [{"choices": [{"text": "x"}]}] * body["max_tokens"] + [{"choices": [], "usage": usage}]
        for event in events:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("bench.measured.bandwidth_gb_s", lambda megabytes: 30.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Completions) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def invoke(*words: str) -> str:
    answer = CliRunner().invoke(app, ["bench", *words], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_serve_tells_and_writes_its_figures(url: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    words = ("--url", url, "--model", MODEL, "--streams", "2", "--prompt", "9", "--output", "4")
    told = invoke("serve", *words, "--rounds", "2", "--json", str(file))
    assert "| 2 streams, 9/4 | median of 2 |" in told
    written = json.loads(file.read_text())
    assert len(written["runs"]) == 2
    assert written["median"]["requests"] == 4
    assert written["median"]["output_tokens"] == 4
    assert written["probes_gb_s"] == [30.0, 30.0]


def test_compare_puts_servers_side_by_side(url: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    servers = (f"ours={url}#{MODEL}", f"theirs={url}/v1#{MODEL}")
    told = invoke(
        "compare", *servers, "--load", "1:8/4", "--load", "2:8/4", "--rounds", "1", "--json", str(file)
    )
    assert "| load (in/out) | ours | theirs | ours / theirs | probe, GB/s |" in told
    loads = json.loads(file.read_text())["loads"]
    assert [[cell["subject"] for cell in row] for row in loads] == [["ours", "theirs"]] * 2


def test_a_server_that_does_not_answer_is_told(url: str) -> None:
    with pytest.raises(NoFigures, match="HTTP 404"):
        invoke("serve", "--url", url, "--model", "another", "--rounds", "1")


def test_words_that_make_no_load_are_refused(url: str) -> None:
    with pytest.raises(BadLoad, match="NAME=URL#MODEL"):
        invoke("compare", url)
    with pytest.raises(BadLoad, match="16:128/128"):
        invoke("compare", f"ours={url}#{MODEL}", "--load", "sixteen")


def test_prefix_needs_a_model_or_a_server() -> None:
    answer = CliRunner().invoke(app, ["bench", "prefix"])
    assert answer.exit_code == 2
    assert "--model FOLDER or --url URL" in answer.output
