"""Stage 5: base and candidate answer the held-out prompts through the endpoint, and the gate speaks."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from db import promotion
from db.rows import AdapterRow
from evals import SuiteResult
from noria.demo.ledger import Interval, StageRecord
from noria.demo.probe import Probe
from noria.demo.stages.bring_up import Platform
from noria.loop import completer, evaluate_adapter, evaluate_base

Results = Mapping[str, SuiteResult]


def evaluate(
    platform: Platform, adapter: AdapterRow, stage: StageRecord, console: Console
) -> dict[str, Interval]:
    """Measure both; the candidate must pass the gate and beat the base outside the confidence bounds."""
    with Probe(platform.url, adapter.id) as probe:
        stage.figures["listed_after_s"] = round(probe.until_named(), 2)
    with completer(platform.url, platform.settings, platform.db) as client:
        base = evaluate_base(platform.db, client, platform.base)
        candidate = evaluate_adapter(platform.db, client, adapter.id)
    console.print(_table(base, candidate, adapter.id))
    behaviour = {"base": _behaviour(base), "adapter": _behaviour(candidate)}
    blockers = promotion.blockers(platform.db, adapter.id)
    for blocker in blockers:
        console.print(f"  [red]blocked[/]: {blocker.detail}")
    if not blockers:
        console.print(f"  the gate is open for {adapter.id}")
    stage.figures["blockers"] = [blocker.detail for blocker in blockers]
    stage.figures["metrics"] = {"base": _figures(base), "adapter": _figures(candidate)}
    stage.require(not blockers, f"the gate is closed: {'; '.join(blocker.detail for blocker in blockers)}")
    stage.require(
        behaviour["adapter"].above(behaviour["base"]),
        f"brief answers {behaviour['adapter']} are not clearly more than {behaviour['base']}",
    )
    stage.headline = f"gate open; brief answers {behaviour['base']} -> {behaviour['adapter']}"
    return behaviour


def _behaviour(results: Results) -> Interval:
    metric = results["brevity"].metric("brief")
    if metric.value is None or metric.low is None or metric.high is None:
        return Interval(0.0, 0.0, 1.0, metric.n)
    return Interval(metric.value, metric.low, metric.high, metric.n)


def _figures(results: Results) -> dict[str, dict[str, float | int | None]]:
    return {
        f"{suite}/{metric.name}": {
            "value": metric.value,
            "low": metric.low,
            "high": metric.high,
            "n": metric.n,
            "unscored": metric.unscored,
        }
        for suite, result in results.items()
        for metric in result.metrics
    }


def _table(base: Results, candidate: Results, adapter_id: str) -> Table:
    table = Table("suite", "metric", "base", adapter_id, title="evaluation, on prompts that never train")
    for suite, result in base.items():
        for metric in result.metrics:
            other = candidate[suite].metric(metric.name)
            cells = [_cell(m.value, m.low, m.high) for m in (metric, other)]
            table.add_row(suite, metric.name, *cells)
    return table


def _cell(value: float | None, low: float | None, high: float | None) -> str:
    if value is None or low is None or high is None:
        return "not scored"
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"
