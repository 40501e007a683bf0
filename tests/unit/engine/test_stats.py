"""The figures of an engine's life, read from outside."""

from engine.fake_runner import FakeRunner, fake_engine
from engine.records import GroupStats, Request, SamplingParams, Spread
from engine.stats import SpreadCounter


def _request(name: str, prompt_len: int, max_tokens: int, first: int = 1) -> Request:
    prompt = (first, *((7 * i) % 90 + 1 for i in range(1, prompt_len)))
    return Request(name, prompt, SamplingParams(max_tokens=max_tokens, seed=0, ignore_eos=True))


def test_sizes_are_counted_by_powers_of_two() -> None:
    counter = SpreadCounter()
    for size in (1, 2, 3, 4, 5, 16):
        counter.add(size)
    assert counter.spread() == Spread((1, 1, 2, 1, 1), 31)


def test_bytes_blocks_and_tokens_of_the_pool() -> None:
    engine = fake_engine(FakeRunner(num_blocks=20, block_bytes=1000))
    engine.add(_request("a", 40, 9))
    engine.step()
    stats = engine.stats()
    assert (stats.blocks_total, stats.blocks_free, stats.live_tokens) == (20, 17, 40)
    assert (stats.kv_bytes_total, stats.kv_bytes_used) == (20_000, 3_000)
    assert stats.reserved_tokens == 3 * 16 - 40
    while engine.has_work:
        engine.step()
    stats = engine.stats()
    assert (stats.kv_bytes_used, stats.live_tokens) == (0, 0)


def test_steps_are_counted_by_their_size() -> None:
    engine = fake_engine(FakeRunner())
    for name in ("a", "b", "c"):
        engine.add(_request(name, 5, 2))
    engine.step()
    engine.step()
    stats = engine.stats()
    assert (stats.last_batch_seqs, stats.last_batch_tokens) == (3, 3)
    assert stats.seqs_by_step == Spread((0, 0, 2), 6)
    assert stats.tokens_by_step == Spread((0, 0, 1, 0, 1), 18)


def test_admissions_evictions_and_the_blocks_of_a_request() -> None:
    engine = fake_engine(FakeRunner(num_blocks=5))
    for number, name in enumerate("abc"):
        engine.add(_request(name, 60, 10, first=number + 1))
    events = []
    while engine.has_work:
        events += engine.step()
    stats = engine.stats()
    assert stats.admissions == 3
    assert stats.evictions > 0
    assert [event.stats.blocks for event in events if event.stats] == [5, 5, 5]


def test_copies_and_blocks_behind_a_window_are_counted() -> None:
    engine = fake_engine(FakeRunner(windows=(20,)))
    engine.add(_request("a", 40, 30))
    engine.step()
    engine.fork("a", _request("b", 41, 2))
    while engine.has_work:
        engine.step()
    engine.add(_request("c", 71, 2))
    engine.step()
    stats = engine.stats()
    assert (stats.copies_on_write, stats.prefix_copies, stats.window_frees) == (1, 1, 5)


def test_blocks_in_use_are_told_by_group() -> None:
    engine = fake_engine(FakeRunner(windows=(None, 20)))
    engine.add(_request("a", 100, 9))
    engine.step()
    stats = engine.stats()
    assert stats.groups == (GroupStats(None, 7), GroupStats(20, 2))
    assert stats.blocks_total - stats.blocks_free == 9
    assert (stats.live_tokens, stats.reserved_tokens, stats.window_frees) == (100, 12, 5)


def test_counters_outlive_a_recovery() -> None:
    engine = fake_engine(FakeRunner(num_blocks=5))
    for number, name in enumerate("abc"):
        engine.add(_request(name, 60, 10, first=number + 1))
    while engine.has_work:
        engine.step()
    before = engine.stats().evictions
    engine.recover("a bug")
    assert engine.stats().evictions == before > 0
