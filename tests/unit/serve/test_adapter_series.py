"""However many adapters are served in turn, /metrics holds a bounded number of series and loses no count."""

from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from serve.choice import Tally
from serve.gathered_metrics import Health
from serve.metrics import MAX_ADAPTERS, Meter, Metrics, ServedAdapters

MANY = 1_000
REQUESTS = "noria:requests_total"
TOKENS = "vllm:request_generation_tokens"


class Served:
    """Metrics of a gateway that serves v0 to v999; two of them for an endpoint."""

    def __init__(self) -> None:
        self.ids = {f"v{number}" for number in range(MANY)}
        self.metrics = Metrics(list, Health, lambda: ServedAdapters(self.ids, {"v0", "v1"}))

    def serve(self, adapter: str, reason: str = "stop") -> None:
        self.metrics.requested(None, "direct", adapter, choices=1, max_tokens=8)
        Meter(self.metrics, "m", adapter).finished(Tally(prompt_tokens=3, completion_tokens=5), reason)

    def samples(self) -> Iterator[Sample]:
        for family in text_string_to_metric_families(self.metrics.render().decode()):
            yield from family.samples

    def by_adapter(self, name: str, **labels: str) -> dict[str, float]:
        found = [
            item for item in self.samples() if item.name == name and labels.items() <= item.labels.items()
        ]
        assert len({item.labels["adapter"] for item in found}) == len(found)
        return {item.labels["adapter"]: item.value for item in found}


@pytest.fixture
def served() -> Served:
    return Served()


def test_a_thousand_adapters_in_turn_do_not_grow_the_metrics(served: Served) -> None:
    sizes = []
    for number in range(MANY):
        served.serve(f"v{number}")
        if number in (299, MANY - 1):
            sizes.append(sum(1 for _ in served.samples()))
    assert sizes[0] == sizes[1]
    counts = served.by_adapter(REQUESTS)
    assert len(counts) == MAX_ADAPTERS + 3  # prod, canary and "other" beside the most recent
    assert set(counts) >= {"v0", "v1", "other", "v999", f"v{MANY - MAX_ADAPTERS}"}
    assert sum(counts.values()) == MANY


@pytest.mark.parametrize(
    ("name", "labels", "each"),
    [
        (f"{TOKENS}_count", {}, 1),
        (f"{TOKENS}_sum", {}, 5),
        (f"{TOKENS}_bucket", {"le": "5.0"}, 1),
        (f"{TOKENS}_bucket", {"le": "2.0"}, 0),
        ("vllm:request_success_total", {"finished_reason": "stop"}, 1),
    ],
)
def test_sums_over_adapters_stay_right(served: Served, name: str, labels: dict[str, str], each: int) -> None:
    for number in range(300):
        served.serve(f"v{number}")
    served.serve("v299", reason="length")
    counts = served.by_adapter(name, **labels)
    extra = each if "finished_reason" not in labels else 0
    assert sum(counts.values()) == 300 * each + extra
    assert counts["other"] == (300 - MAX_ADAPTERS - 2) * each


def test_what_is_used_again_stays_and_what_was_folded_begins_anew(served: Served) -> None:
    for number in range(400):
        served.serve(f"v{number}")
        served.serve("v7")
    counts = served.by_adapter(REQUESTS)
    assert counts["v7"] == 401
    served.serve("v9")
    assert served.by_adapter(REQUESTS)["v9"] == 1
    assert sum(served.by_adapter(REQUESTS).values()) == 801


def test_an_adapter_that_was_unloaded_has_no_series_of_its_own(served: Served) -> None:
    for adapter in ("v0", "v5", "v6"):
        served.serve(adapter)
    served.ids -= {"v0", "v5"}
    assert served.by_adapter(REQUESTS) == {"v6": 1, "other": 2}


def test_the_base_model_always_has_its_own(served: Served) -> None:
    served.metrics.requested(None, "base", None, choices=1, max_tokens=8)
    for number in range(300):
        served.serve(f"v{number}")
    assert served.by_adapter(REQUESTS)["base"] == 1


def test_an_adapter_may_be_called_other(served: Served) -> None:
    served.ids.add("other")
    for number in range(2, 300):
        served.serve(f"v{number}")
        served.serve("other")
    lines = Counter(
        (item.name, *sorted(item.labels.items())) for item in served.samples() if item.name == REQUESTS
    )
    assert set(lines.values()) == {1}
    assert sum(served.by_adapter(REQUESTS).values()) == 596
