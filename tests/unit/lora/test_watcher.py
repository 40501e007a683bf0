"""Following the registry: woken, polling, surviving the source, and the local kill switch."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from db.errors import DatabaseAway
from db.rows import AdapterRow, BaseModelRow, EndpointRow, RegistryRows
from lora.kept_rows import KeptRows
from lora.registry import RegistrySnapshot
from lora.stops import StopsFile
from lora.watcher import RegistryWatcher

THEN = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_S = 20.0
DIGEST = "sha256:" + "a" * 64
ADAPTER = AdapterRow(
    id="a", digest=DIGEST, base_model="tiny", endpoint="support", status="canary", traffic_pct=100.0,
    canary_start=0, loaded=True, pinned=False, store_uri="", config={}, bytes=1, parent=None, replaced=None,
    run_id=None, created_at=THEN,
)  # fmt: skip
ROWS = RegistryRows(
    epoch=1,
    base_models=(BaseModelRow(name="tiny", digest="sha256:base", folder="/m", created_at=THEN),),
    endpoints=(
        EndpointRow(
            name="support", tenant="default", base_model="tiny", experiment="e", anchor=None, created_at=THEN
        ),
    ),
    adapters=(ADAPTER,),
)


class FakeSource:
    """A registry in memory. `away` makes reads fail, `deaf` makes listening fail."""

    def __init__(self) -> None:
        self.rows, self.away, self.deaf = ROWS, False, False
        self.snapshots = self.polls = 0
        self._woken = threading.Event()
        self._flowing = threading.Event()
        self._flowing.set()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Every read that begins in the block lasts to its end; one has begun."""
        polls = self.polls
        self._flowing.clear()
        while self.polls == polls:
            threading.Event().wait(0.005)
        yield
        self._flowing.set()

    def change(self, *, notify: bool = True) -> None:
        self.rows = replace(self.rows, epoch=self.rows.epoch + 1)
        if notify:
            self._woken.set()

    def version(self) -> tuple[int, str]:
        self.polls += 1
        self._flowing.wait(PATIENCE_S)
        self._check()
        return self.rows.epoch, self.rows.mark

    def snapshot(self, since: RegistryRows | None = None) -> RegistryRows:
        self._check()
        self.snapshots += 1
        return self.rows

    def wait(self, timeout_s: float) -> bool:
        if self.deaf:
            raise DatabaseAway("listener lost")
        woken = self._woken.wait(timeout_s)
        self._woken.clear()
        return woken

    def close(self) -> None:
        self._woken.set()

    def _check(self) -> None:
        if self.away:
            raise DatabaseAway("server away")


class Changes:
    """Collects the snapshots that on_change is given."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self._condition = threading.Condition()

    def __call__(self, snapshot: RegistrySnapshot) -> None:
        with self._condition:
            self.epochs.append(snapshot.epoch)
            self._condition.notify_all()

    def wait_for(self, epoch: int) -> bool:
        return self.wait_until(lambda: epoch in self.epochs)

    def wait_until(self, holds: Callable[[], bool]) -> bool:
        with self._condition:
            return self._condition.wait_for(holds, PATIENCE_S)


Start = Callable[..., tuple[RegistryWatcher, FakeSource, Changes]]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[RegistryWatcher] = []

    def begin(
        poll_s: float = 0.01, stops: StopsFile | None = None
    ) -> tuple[RegistryWatcher, FakeSource, Changes]:
        source, changes = FakeSource(), Changes()
        watcher = RegistryWatcher(source, changes, poll_s=poll_s, stops=stops)
        running.append(watcher)
        watcher.start()
        return watcher, source, changes

    yield begin
    for watcher in running:
        watcher.close()


def test_start_reads_the_registry_before_it_returns(start: Start) -> None:
    watcher, _, changes = start(poll_s=PATIENCE_S)
    assert watcher.snapshot.epoch == 1
    assert changes.epochs == [1]
    assert not watcher.stale


def test_start_fails_where_the_registry_cannot_be_read() -> None:
    source = FakeSource()
    source.away = True
    watcher = RegistryWatcher(source)
    with pytest.raises(DatabaseAway):
        watcher.start()
    with pytest.raises(RuntimeError, match="start"):
        _ = watcher.snapshot
    watcher.close()


def test_a_start_without_the_registry_goes_on_with_what_was_kept(tmp_path: Path) -> None:
    kept = KeptRows(tmp_path / "cache" / "registry.json")
    before = RegistryWatcher(FakeSource(), kept=kept)
    before.start()
    before.close()

    source, changes = FakeSource(), Changes()
    source.away = True
    watcher = RegistryWatcher(source, changes, poll_s=0.01, kept=kept)
    watcher.start()
    try:
        assert watcher.snapshot.adapters == {"a": ADAPTER}
        assert watcher.snapshot.epoch == 1
        assert watcher.stale
        source.rows = replace(ROWS, adapters=())  # another registry with the same epoch, as after a restore
        source.away = False
        assert changes.wait_until(lambda: len(changes.epochs) == 2)
        assert watcher.snapshot.adapters == {}
    finally:
        watcher.close()
    assert kept.read() is not None


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"epoch": 1}', '{"epoch": "x", "base_models": 3}'])
def test_a_kept_registry_that_cannot_be_read_is_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "registry.json"
    if content is not None:
        path.write_text(content)
    source = FakeSource()
    source.away = True
    with pytest.raises(DatabaseAway):
        RegistryWatcher(source, kept=KeptRows(path)).start()


def test_kept_rows_are_those_that_were_written(tmp_path: Path) -> None:
    kept = KeptRows(tmp_path / "registry.json")
    kept.write(ROWS)
    found = kept.read()
    assert found is not None
    assert found[0] == ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["registry.json"]


def test_a_disk_that_refuses_the_registry_does_not_stop_the_watcher(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    watcher = RegistryWatcher(FakeSource(), kept=KeptRows(tmp_path / "taken" / "registry.json"))
    watcher.start()
    watcher.close()
    assert watcher.snapshot.epoch == 1


def test_a_notification_brings_the_new_snapshot_without_waiting_for_the_poll(start: Start) -> None:
    watcher, source, changes = start(poll_s=PATIENCE_S)
    source.change()
    assert changes.wait_for(2)
    assert watcher.snapshot.epoch == 2


def test_a_lost_notification_is_made_good_by_the_poll(start: Start) -> None:
    _, source, changes = start()
    source.change(notify=False)
    assert changes.wait_for(2)


def test_polling_goes_on_while_listening_fails(start: Start) -> None:
    _, source, changes = start()
    source.deaf = True
    source.change(notify=False)
    assert changes.wait_for(2)


def test_an_unchanged_epoch_costs_no_snapshot(start: Start) -> None:
    _, source, changes = start()
    polls = source.polls
    source.change()
    assert changes.wait_for(2)
    assert source.polls > polls
    assert source.snapshots == len(changes.epochs) == 2


def test_an_older_epoch_is_taken_too_as_after_a_restore(start: Start) -> None:
    watcher, source, changes = start()
    source.rows = replace(ROWS, epoch=0)
    assert changes.wait_for(0)
    assert watcher.snapshot.epoch == 0


def test_the_last_snapshot_stays_while_the_source_is_away_and_recovers(start: Start) -> None:
    watcher, source, changes = start()
    source.away = True
    polls = source.polls
    while source.polls < polls + 5:
        threading.Event().wait(0.005)
    assert watcher.snapshot.epoch == 1
    assert watcher.stale
    source.change()
    source.away = False
    assert changes.wait_for(2)
    assert watcher.snapshot.epoch == 2


def test_a_callback_that_fails_does_not_end_the_thread(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher, source, changes = start()
    failed = threading.Event()

    def explode(snapshot: RegistrySnapshot) -> None:
        failed.set()
        raise ValueError(snapshot.epoch)

    monkeypatch.setattr(watcher, "_on_change", explode)
    source.change()
    assert failed.wait(PATIENCE_S)
    monkeypatch.setattr(watcher, "_on_change", changes)
    source.change()
    assert changes.wait_for(3)


def answering(watcher: RegistryWatcher) -> str | None:
    target = watcher.snapshot.resolve("support")
    assert target is not None
    return watcher.snapshot.assign(target, "u").adapter_id


@pytest.fixture
def stops(tmp_path: Path) -> StopsFile:
    return StopsFile(tmp_path / "stops.json")


@pytest.mark.parametrize("away", [False, True])
def test_a_stop_takes_effect_and_is_taken_back(start: Start, stops: StopsFile, away: bool) -> None:
    watcher, source, changes = start(stops=stops)
    source.away = away
    assert answering(watcher) == "a"
    stops.add(DIGEST)
    assert changes.wait_until(lambda: len(changes.epochs) == 2)
    assert (answering(watcher), watcher.snapshot.resolve("a")) == (None, None)
    assert watcher.local_stops == [DIGEST]
    stops.remove(DIGEST)
    assert changes.wait_until(lambda: len(changes.epochs) == 3)
    assert answering(watcher) == "a"
    assert watcher.local_stops == []


def test_a_source_that_hangs_does_not_delay_a_stop(start: Start, stops: StopsFile) -> None:
    watcher, source, changes = start(stops=stops)
    with source.hanging():
        stops.add(DIGEST)
        assert changes.wait_until(lambda: len(changes.epochs) == 2)
        assert answering(watcher) is None


def test_what_is_stopped_at_the_start_never_answers(start: Start, stops: StopsFile) -> None:
    stops.add(DIGEST)
    watcher, source, changes = start(stops=stops)
    assert answering(watcher) is None
    source.change()
    assert changes.wait_for(2)
    assert answering(watcher) is None


def test_stops_go_on_being_read_after_a_callback_failed(
    start: Start, stops: StopsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, _, changes = start(stops=stops)
    failed = threading.Event()

    def explode(snapshot: RegistrySnapshot) -> None:
        failed.set()
        raise ValueError(snapshot.epoch)

    monkeypatch.setattr(watcher, "_on_change", explode)
    stops.add(DIGEST)
    assert failed.wait(PATIENCE_S)
    monkeypatch.setattr(watcher, "_on_change", changes)
    stops.remove(DIGEST)
    assert changes.wait_until(lambda: len(changes.epochs) == 2)
    assert answering(watcher) == "a"


def test_closing_twice_and_before_the_start_is_harmless() -> None:
    watcher = RegistryWatcher(FakeSource())
    watcher.close()
    watcher.close()
