"""Prometheus metrics of one gateway: vLLM's names for what vLLM has, `noria:` for the rest.

Figures of requests are measured here and carry the adapter that answered, for a bounded number of adapters;
figures of engines are what the replicas last reported. Nothing is kept in the library's global registry.
"""

import time
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from serve.adapter_series import AdapterFamily, RecentAdapters
from serve.directory import ReplicaReport
from serve.gathered_metrics import GatheredMetrics, Health

if TYPE_CHECKING:
    from serve.choice import Tally

BASE = "base"
"""Stands for the adapter where the base model answers."""
MAX_ADAPTERS = 100
"""Adapters outside endpoints' prod and canary that have series of their own; the rest is "other"."""
_LABELS = ("model_name", "adapter")
_SECONDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
)
_GAPS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000)
_CHOICES = (1, 2, 5, 10, 20)
_FEW = (0, 1, 2, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class ServedAdapters:
    """Ids of the adapters that are served: all of them, and those that are prod or canary of an endpoint."""

    ids: Container[str]
    of_endpoints: Container[str]


class Metrics:
    """All metrics of one gateway."""

    def __init__(
        self,
        reports: Callable[[], Iterable[ReplicaReport]],
        health: Callable[[], Health],
        adapters: Callable[[], ServedAdapters],
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(GatheredMetrics(reports, health))
        self._adapters = adapters
        self._recent = RecentAdapters(
            MAX_ADAPTERS, lambda name: name == BASE or name in adapters().of_endpoints
        )
        histogram = self._histogram
        self.ttft = histogram("vllm:time_to_first_token_seconds", "Time to first token.", _SECONDS)
        self.gap = histogram("vllm:inter_token_latency_seconds", "Time between tokens.", _GAPS)
        self.per_token = histogram("vllm:request_time_per_output_token_seconds", "Mean per token.", _GAPS)
        self.whole = histogram("vllm:e2e_request_latency_seconds", "Time of the whole request.", _SECONDS)
        self.queue = histogram("vllm:request_queue_time_seconds", "Time in the queue.", _SECONDS)
        self.prefill = histogram("vllm:request_prefill_time_seconds", "Time in prefill.", _SECONDS)
        self.decode = histogram("vllm:request_decode_time_seconds", "Time in decode.", _SECONDS)
        self.inference = histogram("vllm:request_inference_time_seconds", "Prefill and decode.", _SECONDS)
        self.prompt = histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", _COUNTS)
        self.generation = histogram("vllm:request_generation_tokens", "Tokens generated.", _COUNTS)
        self._define_cache_figures()
        self.max_tokens = Histogram(
            "vllm:request_params_max_tokens", "max_tokens.", buckets=_COUNTS, registry=self.registry
        )
        self.choices = Histogram(
            "vllm:request_params_n", "Choices asked for.", buckets=_CHOICES, registry=self.registry
        )
        self.success = self._counter(
            "vllm:request_success", "Requests that ended, by reason.", (*_LABELS, "finished_reason")
        )
        self.variants = self._counter(
            "noria:requests",
            "Requests by endpoint and arm of its split.",
            ("endpoint", "variant", "adapter"),
        )
        self._define_figures_without_adapter()

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> AdapterFamily[Histogram]:
        histogram = Histogram(name, text, _LABELS, buckets=buckets, registry=None)
        family = AdapterFamily(histogram, _LABELS, self._recent)
        self.registry.register(family)
        return family

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> AdapterFamily[Counter]:
        family = AdapterFamily(Counter(name, text, labels, registry=None), labels, self._recent)
        self.registry.register(family)
        return family

    def _define_figures_without_adapter(self) -> None:
        self.errors = Counter(
            "noria:http_errors", "Refused or failed requests.", ("code",), registry=self.registry
        )
        self.responses_not_kept = Counter(
            "noria:responses_not_kept",
            "Answers that were to be kept and were not.",
            registry=self.registry,
        )
        self.feedback = Counter("noria:feedback", "Acts of feedback.", ("kind",), registry=self.registry)

    def _define_cache_figures(self) -> None:
        histogram = self._histogram
        self.computed = histogram(
            "vllm:request_prefill_kv_computed_tokens", "Prompt tokens not found in the cache.", _COUNTS
        )
        self.cached = histogram("noria:request_cached_tokens", "Prompt tokens found in the cache.", _COUNTS)
        self.blocks = histogram("noria:request_kv_blocks", "KV blocks a request held at most.", _COUNTS)
        self.preemptions = histogram("noria:request_preemptions", "Preemptions of a request.", _FEW)

    def requested(
        self, endpoint: str | None, variant: str, adapter: str | None, choices: int, max_tokens: int
    ) -> None:
        """A request for text was routed."""
        self.routed(endpoint, variant, adapter)
        self.choices.observe(choices)
        self.max_tokens.observe(max_tokens)

    def routed(self, endpoint: str | None, variant: str, adapter: str | None) -> None:
        """Any request was routed."""
        self.variants.labels(endpoint or "", variant, adapter or BASE).inc()

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        served = self._adapters().ids
        self._recent.forget(lambda name: name != BASE and name not in served)
        return generate_latest(self.registry)


class Meter:
    """The metrics of one completion."""

    def __init__(self, metrics: Metrics, model: str, adapter: str) -> None:
        self._metrics = metrics
        self._labels = (model, adapter)

    def tokens(self, tally: "Tally", count: int, now: float) -> None:
        """`count` tokens came at `now`; several in one read count as evenly spaced."""
        if tally.last_token is None:
            self._metrics.ttft.labels(*self._labels).observe(now - tally.started)
            return
        gap = self._metrics.gap.labels(*self._labels)
        for _ in range(count):
            gap.observe((now - tally.last_token) / count)

    def finished(self, tally: "Tally", reason: str) -> None:
        """The completion ended; figures of tokens and times are kept of those that ended well."""
        metrics, labels = self._metrics, self._labels
        metrics.success.labels(*labels, reason).inc()
        if reason not in ("stop", "length"):
            return
        metrics.whole.labels(*labels).observe(time.perf_counter() - tally.started)
        metrics.prompt.labels(*labels).observe(tally.prompt_tokens)
        metrics.generation.labels(*labels).observe(tally.completion_tokens)
        if tally.first_token is not None and tally.last_token is not None and tally.completion_tokens > 1:
            decode = tally.last_token - tally.first_token
            metrics.per_token.labels(*labels).observe(decode / (tally.completion_tokens - 1))
        if (stats := tally.stats) is not None:
            metrics.queue.labels(*labels).observe(stats.queue_s)
            metrics.prefill.labels(*labels).observe(stats.prefill_s)
            metrics.decode.labels(*labels).observe(stats.decode_s)
            metrics.computed.labels(*labels).observe(stats.prompt_tokens - stats.cached_tokens)
            metrics.cached.labels(*labels).observe(stats.cached_tokens)
            metrics.blocks.labels(*labels).observe(stats.blocks)
            metrics.preemptions.labels(*labels).observe(stats.preemptions)
            metrics.inference.labels(*labels).observe(stats.prefill_s + stats.decode_s)
