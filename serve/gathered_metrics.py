"""Metrics that a gateway reads when asked for: what replicas last reported, and its surroundings.

Figures of engines carry the replica's name; vLLM's names stand for what vLLM has.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.records import Spread
from serve.directory import ReplicaReport


@dataclass(frozen=True, slots=True)
class Health:
    """What the gateway knows of its surroundings."""

    database_ok: bool = True
    registry_stale_s: float = 0.0
    local_stops: int = 0
    spool_bytes: int = 0
    records_stored: int = 0
    records_dropped: int = 0
    records_refused: int = 0
    rows_stranded: int = 0


_GAUGES: tuple[tuple[str, str, Callable[[ReplicaReport], float]], ...] = (
    ("vllm:num_requests_running", "Requests in the running batch.", lambda r: r.stats.running),
    ("vllm:num_requests_waiting", "Requests that wait.", lambda r: r.stats.waiting),
    (
        "vllm:kv_cache_usage_perc",
        "Share of KV blocks in use (1 is all).",
        lambda r: 1 - r.stats.blocks_free / r.stats.blocks_total if r.stats.blocks_total else 0.0,
    ),
    ("noria:kv_blocks_total", "KV blocks.", lambda r: r.stats.blocks_total),
    ("noria:kv_blocks_free", "KV blocks no sequence uses.", lambda r: r.stats.blocks_free),
    ("noria:host_blocks_total", "KV blocks of host memory.", lambda r: r.stats.host_blocks_total),
    ("noria:host_blocks_free", "Unused KV blocks of host memory.", lambda r: r.stats.host_blocks_free),
    ("noria:kv_bytes_total", "Bytes of the KV pool.", lambda r: r.stats.kv_bytes_total),
    ("noria:kv_bytes_used", "Bytes of KV blocks in use.", lambda r: r.stats.kv_bytes_used),
    ("noria:kv_live_tokens", "Cached tokens of running requests.", lambda r: r.stats.live_tokens),
    ("noria:kv_reserved_tokens", "Places in their KV blocks still free.", lambda r: r.stats.reserved_tokens),
    ("noria:kv_blocks_cached", "Free KV blocks that hold a prefix.", lambda r: r.stats.blocks_cached),
    ("noria:adapters_resident", "Adapters resident on the replica.", lambda r: len(r.adapters)),
    ("noria:adapters_added", "Adapters the engine can compute with.", lambda r: r.stats.adapters),
    ("noria:adapters_bound", "Adapters that hold a slot.", lambda r: r.stats.adapters_bound),
    ("noria:requests_parked", "Running requests without a slot.", lambda r: r.stats.parked),
    (
        "noria:slot_wait_longest_steps",
        "Steps that an adapter waited for a slot.",
        lambda r: r.stats.longest_slot_wait_steps,
    ),
    (
        "noria:slot_wait_longest_seconds",
        "Seconds that an adapter waited for a slot.",
        lambda r: r.stats.longest_slot_wait_s,
    ),
)
_COUNTERS: tuple[tuple[str, str, Callable[[ReplicaReport], float]], ...] = (
    ("vllm:prefix_cache_queries", "Prompt tokens looked up.", lambda r: r.stats.prefix_queries),
    ("vllm:prefix_cache_hits", "Prompt tokens found.", lambda r: r.stats.prefix_hits),
    ("vllm:num_preemptions", "Preemptions.", lambda r: r.stats.preemptions),
    ("noria:admissions", "Requests that began to run, again too.", lambda r: r.stats.admissions),
    ("noria:kv_evictions", "Cached KV blocks given up.", lambda r: r.stats.evictions),
    ("noria:kv_copies_on_write", "Shared KV blocks copied to be written.", lambda r: r.stats.copies_on_write),
    ("noria:kv_prefix_copies", "KV blocks copied for a part of them.", lambda r: r.stats.prefix_copies),
    ("noria:kv_window_frees", "KV blocks given up behind a window.", lambda r: r.stats.window_frees),
    ("vllm:prompt_tokens", "Prompt tokens computed.", lambda r: r.stats.prompt_tokens),
    ("vllm:generation_tokens", "Tokens generated.", lambda r: r.stats.generated_tokens),
    ("noria:slot_changes", "Times that a slot went to an adapter.", lambda r: r.stats.slot_changes),
    ("noria:engine_steps", "Steps of the engine.", lambda r: r.stats.steps),
    ("noria:engine_failed_steps", "Steps that failed.", lambda r: r.stats.failed_steps),
)
_SPREADS: tuple[tuple[str, str, Callable[[ReplicaReport], Spread]], ...] = (
    ("vllm:iteration_tokens_total", "Tokens of a step.", lambda r: r.stats.tokens_by_step),
    ("noria:iteration_requests", "Requests of a step.", lambda r: r.stats.seqs_by_step),
)


class GatheredMetrics(Collector):
    """Metrics that are read when asked for."""

    def __init__(self, reports: Callable[[], Iterable[ReplicaReport]], health: Callable[[], Health]) -> None:
        self._reports = reports
        self._health = health

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        reports = list(self._reports())
        for name, text, read in _GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=("model_name", "engine"))
            for report in reports:
                gauge.add_metric((report.base_model, report.replica), read(report))
            yield gauge
        for name, text, read in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=("model_name", "engine"))
            for report in reports:
                counter.add_metric((report.base_model, report.replica), read(report))
            yield counter
        for name, text, spread in _SPREADS:
            histogram = HistogramMetricFamily(name, text, labels=("model_name", "engine"))
            for report in reports:
                buckets, total = _buckets(spread(report))
                histogram.add_metric((report.base_model, report.replica), buckets, total)
            yield histogram
        yield _memory(reports)
        yield _used_by_group(reports)
        yield _preemptions(reports)
        yield _lora_info(reports)
        yield from _surroundings(self._health())


def _buckets(spread: Spread) -> tuple[list[tuple[str, float]], int]:
    """Prometheus wants each bucket to count all below its bound, up to the last without one."""
    sums = list(accumulate(spread.counts))
    bounded: list[tuple[str, float]] = [(str(float(2**place)), count) for place, count in enumerate(sums)]
    return [*bounded, ("+Inf", sums[-1] if sums else 0)], spread.total


def _memory(reports: list[ReplicaReport]) -> Metric:
    gauge = GaugeMetricFamily(
        "noria:memory_bytes", "Memory set aside, by part.", labels=("model_name", "engine", "part")
    )
    for report in reports:
        for part, count in report.stats.memory.parts().items():
            gauge.add_metric((report.base_model, report.replica, part), count)
    return gauge


def _used_by_group(reports: list[ReplicaReport]) -> Metric:
    """The pool is one for all groups of layers: what is free is free to each."""
    labels = ("model_name", "engine", "group", "window")
    gauge = GaugeMetricFamily("noria:kv_blocks_used", "KV blocks in use by a group of layers.", labels=labels)
    for report in reports:
        for number, group in enumerate(report.stats.groups):
            window = "none" if group.window is None else str(group.window)
            gauge.add_metric((report.base_model, report.replica, str(number), window), group.blocks_used)
    return gauge


def _preemptions(reports: list[ReplicaReport]) -> Metric:
    counter = CounterMetricFamily(
        "noria:preemptions", "Preemptions by what becomes of the KV.", labels=("model_name", "engine", "kind")
    )
    for report in reports:
        stats = report.stats
        for kind, count in (("swap", stats.swaps), ("recompute", stats.preemptions - stats.swaps)):
            counter.add_metric((report.base_model, report.replica, kind), count)
    return counter


def _lora_info(reports: list[ReplicaReport]) -> Metric:
    """Adapters that requests run on or wait for, by digest; the value is the time, as in vLLM."""
    labels = ("engine", "max_lora", "waiting_lora_adapters", "running_lora_adapters")
    gauge = GaugeMetricFamily("vllm:lora_requests_info", "Adapters in use.", labels=labels)
    for report in reports:
        running = sorted(digest for digest, known in report.adapters.items() if known["pins"])
        waiting = sorted(digest for digest, known in report.adapters.items() if known["waiting"])
        values = (report.replica, str(report.adapter_slots), ",".join(waiting), ",".join(running))
        gauge.add_metric(values, time.time())
    return gauge


def _surroundings(health: Health) -> Iterable[Metric]:
    yield GaugeMetricFamily("noria:database_up", "The database answers.", value=health.database_ok)
    yield GaugeMetricFamily(
        "noria:registry_stale_seconds", "Age of the registry.", value=health.registry_stale_s
    )
    yield GaugeMetricFamily(
        "noria:local_stops", "Adapter versions that are stopped on this machine.", value=health.local_stops
    )
    yield GaugeMetricFamily("noria:spool_bytes", "Records not in the database yet.", value=health.spool_bytes)
    yield CounterMetricFamily("noria:records_stored", "Records stored.", value=health.records_stored)
    yield CounterMetricFamily(
        "noria:records_dropped", "Records lost: full spool.", value=health.records_dropped
    )
    yield CounterMetricFamily("noria:records_refused", "Records put aside.", value=health.records_refused)
    yield GaugeMetricFamily(
        "noria:rows_stranded", "Rows that found no weekly partition.", value=health.rows_stranded
    )
