"""What Prometheus reads of the engines behind a gateway."""

from prometheus_client import generate_latest

from engine.records import EngineStats, GroupStats, MemorySplit, Spread
from serve.directory import ReplicaReport
from serve.gathered_metrics import Health
from serve.metrics import Metrics, ServedAdapters


def _text(report: ReplicaReport) -> str:
    return generate_latest(
        Metrics(lambda: [report], Health, lambda: ServedAdapters((), ())).registry
    ).decode()


def _report(stats: EngineStats) -> ReplicaReport:
    return ReplicaReport(
        replica="r",
        base_model="m",
        host="h",
        port=1,
        max_model_len=100,
        adapter_slots=4,
        healthy=True,
        stats=stats,
    )


def test_figures_of_the_pool_and_of_the_steps() -> None:
    stats = EngineStats(
        blocks_total=4,
        blocks_free=3,
        kv_bytes_total=4096,
        kv_bytes_used=1024,
        live_tokens=16,
        admissions=5,
        reserved_tokens=9,
        memory=MemorySplit(weights=100, kv=4096),
        groups=(GroupStats(None, 1), GroupStats(512, 0)),
        evictions=7,
        preemptions=6,
        swaps=2,
        copies_on_write=3,
        window_frees=8,
        tokens_by_step=Spread((1, 3, 5), 40),
        adapters=20,
        adapters_bound=2,
        slot_changes=30,
        parked=4,
        longest_slot_wait_steps=6,
        longest_slot_wait_s=0.5,
    )
    text = _text(_report(stats))
    labels = '{engine="r",model_name="m"}'
    for line in (
        f"noria:kv_bytes_total{labels} 4096.0",
        f"noria:kv_bytes_used{labels} 1024.0",
        f"noria:kv_blocks_free{labels} 3.0",
        f"noria:kv_live_tokens{labels} 16.0",
        f"noria:kv_evictions_total{labels} 7.0",
        f"noria:admissions_total{labels} 5.0",
        f"noria:kv_reserved_tokens{labels} 9.0",
        'noria:memory_bytes{engine="r",model_name="m",part="weights"} 100.0',
        'noria:memory_bytes{engine="r",model_name="m",part="kv"} 4096.0',
        'noria:kv_blocks_used{engine="r",group="0",model_name="m",window="none"} 1.0',
        'noria:kv_blocks_used{engine="r",group="1",model_name="m",window="512"} 0.0',
        f"noria:kv_copies_on_write_total{labels} 3.0",
        f"noria:kv_window_frees_total{labels} 8.0",
        'noria:preemptions_total{engine="r",kind="swap",model_name="m"} 2.0',
        'noria:preemptions_total{engine="r",kind="recompute",model_name="m"} 4.0',
        'vllm:iteration_tokens_total_bucket{engine="r",le="2.0",model_name="m"} 4.0',
        'vllm:iteration_tokens_total_bucket{engine="r",le="+Inf",model_name="m"} 9.0',
        f"noria:adapters_added{labels} 20.0",
        f"noria:adapters_bound{labels} 2.0",
        f"noria:slot_changes_total{labels} 30.0",
        f"noria:requests_parked{labels} 4.0",
        f"noria:slot_wait_longest_steps{labels} 6.0",
        f"noria:slot_wait_longest_seconds{labels} 0.5",
        f"vllm:iteration_tokens_total_sum{labels} 40.0",
        f"vllm:iteration_tokens_total_count{labels} 9.0",
    ):
        assert line in text.splitlines()


def test_a_replica_without_a_step_has_empty_spreads() -> None:
    text = _text(_report(EngineStats()))
    assert 'noria:iteration_requests_count{engine="r",model_name="m"} 0.0' in text.splitlines()
