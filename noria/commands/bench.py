"""`noria bench`: measure a server, the engine alone, the prefix cache, or several servers side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from noria import options
from noria.console import err, out
from noria.instance import running_url

if TYPE_CHECKING:
    from bench.measured import Measured

app = typer.Typer(help="Measure speed: of a server, of the engine, beside peers.", no_args_is_help=True)

Json = Annotated[Path | None, typer.Option("--json", help="Also write the figures to this file.")]
Rounds = Annotated[int, typer.Option(min=1, help="Runs; the median is told.")]
Streams = Annotated[int, typer.Option(min=1, help="Requests at once.")]
Requests = Annotated[
    int | None, typer.Option(min=1, help="Requests of a run.", show_default="2 a stream, at least 4")
]
Prompt = Annotated[int, typer.Option("--prompt", min=1, help="Tokens of a prompt.")]
Output = Annotated[int, typer.Option("--output", min=1, help="Tokens of a completion.")]
Shared = Annotated[int, typer.Option("--shared-prefix", min=0, help="First tokens that prompts share.")]
Folder = Annotated[Path, typer.Option("--model", help="Folder of the model.", exists=True, file_okay=False)]
Url = Annotated[str | None, typer.Option("--url", help="Base URL.", show_default="this instance")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--model", help="Model or adapter to ask for; several are taken in turn.", show_default="the first"
    ),
]
Key = Annotated[str, typer.Option("--api-key", help="Bearer key.", show_default=False)]


@app.command("serve")
def serve_load(
    url: Url = None,
    model: Names = None,
    streams: Streams = 16,
    requests: Requests = None,
    prompt: Prompt = 128,
    output: Output = 128,
    shared_prefix: Shared = 0,
    rounds: Rounds = 3,
    api_key: Key = "",
    config: options.Config = None,
    data: options.Data = None,
    json: Json = None,
) -> None:
    """Offer a closed loop of greedy streams to an OpenAI-compatible server."""
    from bench.client import Target
    from bench.compare import measure, requests_of
    from bench.loads import make_load
    from bench.report import write_json

    settings = options.settings(config, data)
    names = tuple(model or [settings.models[0].id])
    target = Target("server", url or running_url(settings), names, api_key)
    load = make_load(streams, requests, prompt, output, shared_prefix)
    with _progress(load.label, requests_of(1, [load], rounds)) as on_done:
        found = measure([target], [load], rounds, on_done)[0][0]
    _show(found)
    if json:
        write_json(json, {"models": names, **found.as_dict()})


@app.command("engine")
def engine_load(
    model: Folder,
    streams: Streams = 16,
    requests: Requests = None,
    prompt: Prompt = 128,
    output: Output = 128,
    shared_prefix: Shared = 0,
    adapters: Annotated[int, typer.Option(min=0, help="Random adapters that requests take in turn.")] = 0,
    rank: Annotated[int, typer.Option(min=1, help="Their rank.")] = 16,
    int8: Annotated[bool, typer.Option("--int8", help="Weights in int8.")] = False,
    int8_cache: Annotated[bool, typer.Option("--int8-cache", help="Keys and values in int8.")] = False,
    rounds: Rounds = 3,
    json: Json = None,
) -> None:
    """Offer the same load to the engine in this process, without HTTP."""
    from bench.inprocess import measure
    from bench.loads import make_load
    from bench.report import write_json
    from engine import EngineConfig

    load = make_load(streams, requests, prompt, output, shared_prefix)
    config = EngineConfig(
        model=model,
        adapter_slots=adapters,
        max_lora_rank=rank,
        weights="int8" if int8 else "model",
        kv_cache="int8" if int8_cache else "model",
    )
    with _progress(load.label, rounds * load.requests) as on_done:
        found = measure(config, load, rounds, on_done)
    _show(found)
    if json:
        forms = {"weights": config.weights, "kv_cache": config.kv_cache}
        write_json(json, {"adapters": adapters, "rank": rank, **forms, **found.as_dict()})


@app.command()
def prefix(
    model: Annotated[Path | None, typer.Option("--model", help="Folder of the model.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="Ask a server instead of an own engine.")] = None,
    name: Annotated[str, typer.Option("--name", help="Model to ask the server for.")] = "smollm2-135m",
    tokens: Annotated[int, typer.Option(min=16, help="Tokens of the shared prefix.")] = 1024,
    rounds: Rounds = 5,
    json: Json = None,
) -> None:
    """Time to the first token over a shared prefix, first request beside second; and what no hit costs."""
    from bench import prefix as measured
    from bench.report import write_json

    if (model is None) == (url is None):
        raise typer.BadParameter("either --model FOLDER or --url URL is needed")
    cost = None
    if url is not None:
        with _progress("pairs", 2 * rounds) as on_done:
            gain = measured.gain(measured.over_http(url, name, on_done), tokens, rounds)
    elif model is not None:
        cached, plain = measured.engines(model)
        load = measured.UNSHARED
        with _progress("pairs, then prompts that share nothing", 2 * rounds * (1 + load.requests)) as on_done:
            gain = measured.gain(measured.in_process(cached, on_done), tokens, rounds)
            cost = measured.cost(cached, plain, load, rounds, on_done)
    first, second = median(gain.first_ms), median(gain.second_ms)
    out.print(f"first token: {first:.0f} ms, over the shared prefix {second:.0f} ms, ratio {gain.ratio:.3f}")
    if cost:
        out.print(f"no hit: the cache adds {100 * cost.part:.2f} % to a run")
    if json:
        write_json(json, {"gain": asdict(gain), "cost": asdict(cost) if cost else None})


@app.command()
def compare(
    server: Annotated[list[str], typer.Argument(metavar="NAME=URL#MODEL...", help="Servers, ours first.")],
    load: Annotated[
        list[str] | None,
        typer.Option(help="STREAMS:PROMPT/OUTPUT. Repeatable.", show_default="the usual five"),
    ] = None,
    per_stream: Annotated[int, typer.Option(min=1, help="Requests of each stream in a run.")] = 2,
    rounds: Rounds = 3,
    json: Json = None,
) -> None:
    """Offer the same loads to several servers in alternation, a probe of the machine beside each figure."""
    from bench import compare as measured
    from bench.client import parse_target
    from bench.loads import USUAL, parse_load
    from bench.report import write_json

    targets = [parse_target(word) for word in server]
    loads = [parse_load(word, per_stream) for word in load or USUAL]
    total = measured.requests_of(len(targets), loads, rounds)
    with _progress(" and ".join(target.name for target in targets), total) as on_done:
        found = measured.measure(targets, loads, rounds, on_done)
    out.print(measured.table(found), markup=False)
    if json:
        write_json(json, {"loads": [[cell.as_dict() for cell in row] for row in found]})


def _show(found: Measured) -> None:
    from bench.report import markdown

    middle = found.median
    rows = [
        ("output tok/s", f"{middle.output_tok_s:.1f}"),
        ("TTFT, ms: p50, p95, p99", _three(middle.ttft_p50_ms, middle.ttft_p95_ms, middle.ttft_p99_ms)),
        ("TPOT, ms: p50, p95, p99", _three(middle.tpot_p50_ms, middle.tpot_p95_ms, middle.tpot_p99_ms)),
        ("longest gap in a stream, ms: p95", f"{middle.gap_p95_ms:.1f}"),
        ("tokens in, out", f"{middle.prompt_tokens:.0f}, {middle.output_tokens:.0f}"),
        ("requests of a run, failed in all", f"{middle.requests:.0f}, {middle.errors:.0f}"),
        ("probe, GB/s", f"{median(found.probes):.1f}"),
    ]
    out.print(markdown([found.load.label, f"median of {len(found.runs)}"], rows), markup=False)


def _three(*values: float) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar of requests on standard error; what it yields counts one."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, refresh_per_second=2) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)
