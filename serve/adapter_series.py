"""Metrics by adapter whose number of series is bounded, however many adapters a gateway serves in turn.

An adapter has series of its own while it was used lately; then what they counted goes on under the adapter
"other", so that sums over all adapters never lose anything. It knows neither registry nor requests.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

OTHER = "other"
_LABEL = "adapter"

M = TypeVar("M", Counter, Histogram)
Labels = tuple[str, ...]


class AdapterFamily(Collector, Generic[M]):
    """One metric with a label "adapter". `metric` is registered nowhere else; `labels` names its labels."""

    def __init__(self, metric: M, labels: Sequence[str], recent: "RecentAdapters") -> None:
        self._metric: M = metric
        self._labels: Labels = tuple(labels)
        self._recent = recent
        self._place = self._labels.index(_LABEL)
        self._series: defaultdict[str, set[Labels]] = defaultdict(set)
        self._folded: defaultdict[Labels, defaultdict[tuple[str, str], float]] = defaultdict(
            lambda: defaultdict(float)
        )
        recent.join(self)

    def labels(self, *values: str) -> M:
        """The series of these labels, to be used at once and not kept: it may be folded after."""
        adapter = values[self._place]
        self._recent.touch(adapter)
        self._series[adapter].add(values)
        return self._metric.labels(*values)

    def fold(self, adapter: str) -> None:
        """Count on under "other" what the adapter's own series have counted."""
        gone: set[Labels] = self._series.pop(adapter, set())
        for values in gone:
            kept = self._folded[self._as_other(values)]
            for family in self._metric.labels(*values).collect():
                for sample in family.samples:
                    if not sample.name.endswith("_created"):
                        kept[sample.name, sample.labels.get("le", "")] += sample.value
            self._metric.remove(*values)

    def collect(self) -> Iterable[Metric]:
        self.fold(OTHER)  # there may be an adapter of that name
        for family in self._metric.collect():
            for values, kept in self._folded.items():
                labels = dict(zip(self._labels, values, strict=True))
                for (name, bound), value in kept.items():
                    family.add_sample(name, labels | ({"le": bound} if bound else {}), value)
            yield family

    def _as_other(self, values: Labels) -> Labels:
        return (*values[: self._place], OTHER, *values[self._place + 1 :])


class RecentAdapters:
    """Which adapters have series of their own: those to be kept, and the `limit` used last of the others."""

    def __init__(self, limit: int, is_kept: Callable[[str], bool]) -> None:
        self._limit, self._is_kept = limit, is_kept
        self._used: OrderedDict[str, None] = OrderedDict()
        self._families: list[AdapterFamily[Counter] | AdapterFamily[Histogram]] = []

    def join(self, family: "AdapterFamily[Counter] | AdapterFamily[Histogram]") -> None:
        """From now on the family follows."""
        self._families.append(family)

    def touch(self, adapter: str) -> None:
        """The adapter is used now; what is over the limit is folded, the longest unused first."""
        known = adapter in self._used
        self._used[adapter] = None
        self._used.move_to_end(adapter)
        if not known:
            others = [name for name in self._used if not self._is_kept(name)]
            self._fold(others[: max(0, len(others) - self._limit)])

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Fold adapters that are served no more."""
        self._fold([name for name in self._used if is_gone(name)])

    def _fold(self, adapters: Iterable[str]) -> None:
        for adapter in adapters:
            del self._used[adapter]
            for family in self._families:
                family.fold(adapter)
