import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from db.errors import Conflict, DatabaseAway, InvalidValue
from db.rows import FeedbackRecord, RequestRecord
from serve.record.recorder import Recorder
from serve.record.spool import SpoolWriter, segment_path

MakeRequest = Callable[..., RequestRecord]
MakeFeedback = Callable[..., FeedbackRecord]


class Table:
    """A sink in memory, idempotent by id as the real one is."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.away = threading.Event()
        self.poison: set[str] = set()
        self.conflicts = 0
        self.calls = 0

    def requests(self, records: Sequence[RequestRecord]) -> None:
        self._take(records)

    def feedback(self, records: Sequence[FeedbackRecord]) -> None:
        self._take(records)

    def _take(self, records: Sequence[Any]) -> None:
        self.calls += 1
        if self.away.is_set():
            raise DatabaseAway("no connection")
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("deadlock detected")
        if bad := [record.id for record in records if record.id in self.poison]:
            raise InvalidValue(f"row {bad[0]}")
        for record in records:
            self.rows.setdefault(record.id, record)


def ended(record: RequestRecord) -> RequestRecord:
    return replace(record, finish_reason="stop", completion="x")


def spooled(root: Path) -> SpoolWriter:
    return SpoolWriter(root, max_bytes=1 << 20)


def put(spool: SpoolWriter, record: RequestRecord) -> RequestRecord:
    spool.begin(record)
    done = ended(record)
    spool.end(record, done)
    return done


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not check():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_records_reach_the_database_and_the_folder_goes(
    tmp_path: Path, request_record: MakeRequest, feedback_record: MakeFeedback
) -> None:
    spool, table = spooled(tmp_path), Table()
    recorder = Recorder(spool, table)
    recorder.start()
    done, act = put(spool, request_record()), feedback_record()
    spool.feedback(act)
    until(lambda: len(table.rows) == 2)
    assert table.rows == {done.id: done, act.id: act}
    assert recorder.stop(5)
    assert not spool.folder.exists()


def test_many_records_go_in_few_batches(tmp_path: Path, request_record: MakeRequest) -> None:
    spool, table = spooled(tmp_path), Table()
    for _ in range(200):
        put(spool, request_record())
    recorder = Recorder(spool, table)
    recorder.start()
    until(lambda: len(table.rows) == 200)
    assert table.calls <= 3
    assert recorder.stop(5)


def test_the_database_may_be_away(tmp_path: Path, request_record: MakeRequest) -> None:
    spool, table = spooled(tmp_path), Table()
    table.away.set()
    recorder = Recorder(spool, table)
    recorder.start()
    done = put(spool, request_record())
    until(lambda: not recorder.state.database_ok)
    assert table.rows == {}
    table.away.clear()
    until(lambda: done.id in table.rows)
    assert recorder.state.database_ok
    assert recorder.stop(5)


def test_stopping_while_the_database_is_away_keeps_the_spool(
    tmp_path: Path, request_record: MakeRequest
) -> None:
    spool, table = spooled(tmp_path), Table()
    table.away.set()
    recorder = Recorder(spool, table)
    recorder.start()
    done = put(spool, request_record())
    until(lambda: not recorder.state.database_ok)
    assert recorder.stop(5)
    spool.close()
    assert spool.folder.exists()
    table.away.clear()
    successor = Recorder(spooled(tmp_path), table)
    successor.start()
    until(lambda: done.id in table.rows)
    assert successor.stop(5)


def test_a_dead_gateways_spool_is_adopted(
    tmp_path: Path, request_record: MakeRequest, feedback_record: MakeFeedback
) -> None:
    dead, table = spooled(tmp_path), Table()
    done, cut, act = put(dead, request_record()), request_record(), feedback_record()
    dead.begin(cut)
    dead.feedback(act)
    dead.close()  # what a kill does: the lock is free, the files are there
    recorder = Recorder(spooled(tmp_path), table)
    recorder.start()
    until(lambda: not dead.folder.exists())
    assert table.rows == {done.id: done, act.id: act, cut.id: cut}
    assert recorder.state.interrupted == 1
    assert recorder.stop(5)


def test_a_living_gateways_spool_is_left_alone(tmp_path: Path, request_record: MakeRequest) -> None:
    alive, table = spooled(tmp_path), Table()
    alive.begin(request_record())
    recorder = Recorder(spooled(tmp_path), table)
    recorder.start()
    assert recorder.stop(5)
    assert alive.folder.exists()
    assert table.rows == {}


def test_a_record_that_the_tables_refuse_is_put_aside(tmp_path: Path, request_record: MakeRequest) -> None:
    spool, table = spooled(tmp_path), Table()
    records = [request_record() for _ in range(9)]
    table.poison = {records[4].id}
    for record in records:
        put(spool, record)
    recorder = Recorder(spool, table)
    recorder.start()
    until(lambda: recorder.state.stored == 8)
    assert recorder.state.refused == 1
    assert records[4].id not in table.rows
    assert (tmp_path / "refused" / f"{records[4].id}.msgpack").exists()
    assert records[4].id not in str(recorder.state.last_error)
    assert recorder.stop(5)


def test_a_lost_race_for_a_lock_is_tried_again(tmp_path: Path, request_record: MakeRequest) -> None:
    spool, table = spooled(tmp_path), Table()
    table.conflicts = 2
    done = put(spool, request_record())
    recorder = Recorder(spool, table)
    recorder.start()
    until(lambda: done.id in table.rows)
    assert (recorder.state.refused, recorder.state.database_ok) == (0, True)
    until(lambda: recorder.state.last_error is None)
    assert recorder.stop(5)


def test_a_damaged_spool_gives_what_can_be_read_and_is_put_aside(
    tmp_path: Path, request_record: MakeRequest
) -> None:
    dead, table = spooled(tmp_path), Table()
    done = put(dead, request_record())
    whole = dead.bytes
    dead.begin(request_record())
    path = segment_path(dead.folder, 1)
    data = bytearray(path.read_bytes())
    data[whole + 40] ^= 0xFF
    path.write_bytes(data)
    dead.close()
    recorder = Recorder(spooled(tmp_path), table)
    recorder.start()
    until(lambda: not dead.folder.exists())
    assert set(table.rows) == {done.id}
    assert recorder.state.refused == 1
    assert (tmp_path / "refused" / dead.folder.name / path.name).read_bytes() == data
    assert recorder.stop(5)
