from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from db.rows import FeedbackRecord, RequestRecord
from serve.errors import SpoolFull
from serve.record.reader import SpoolReader
from serve.record.spool import SpoolWriter, segment_path, try_lock

MakeRequest = Callable[..., RequestRecord]
MakeFeedback = Callable[..., FeedbackRecord]


def finished(record: RequestRecord) -> RequestRecord:
    return replace(record, finish_reason="stop", completion="done", completion_tokens=4)


def writer(root: Path, **options: int) -> SpoolWriter:
    return SpoolWriter(root, **{"max_bytes": 1 << 20, **options})


def test_what_is_written_is_read_back(
    tmp_path: Path, request_record: MakeRequest, feedback_record: MakeFeedback
) -> None:
    spool, begun, act = writer(tmp_path), request_record(), feedback_record()
    spool.begin(begun)
    spool.feedback(act)
    spool.end(begun, finished(begun))
    batch = SpoolReader(spool.folder).read(100)
    assert batch.requests == [finished(begun)]
    assert batch.feedback == [act]
    assert batch.entries == 3


def test_what_was_read_to_its_end_has_nothing_unread(tmp_path: Path, request_record: MakeRequest) -> None:
    spool = writer(tmp_path)
    reader = SpoolReader(spool.folder)
    assert not reader.unread
    spool.begin(request_record())
    reader.read(100)
    assert not reader.unread


def test_a_begin_without_an_end_is_an_interrupted_request(
    tmp_path: Path, request_record: MakeRequest
) -> None:
    spool, done, cut = writer(tmp_path), request_record(), request_record()
    spool.begin(done)
    spool.begin(cut)
    spool.end(done, finished(done))
    reader = SpoolReader(spool.folder)
    assert reader.read(100).requests == [finished(done)]
    assert reader.unfinished() == [cut]
    assert cut.finish_reason == "interrupted"


def test_a_reader_follows_a_living_writer(tmp_path: Path, request_record: MakeRequest) -> None:
    spool = writer(tmp_path, segment_bytes=700)
    reader = SpoolReader(spool.folder)
    for number in range(20):
        record = request_record(completion=str(number))
        spool.begin(record)
        assert not reader.read(100).requests
        spool.end(record, finished(record))
        assert reader.read(100).requests == [finished(record)]
    assert not reader.read(100)
    assert len(list(spool.folder.glob("*.spool"))) > 3


def test_read_segments_are_deleted_while_requests_are_open(
    tmp_path: Path, request_record: MakeRequest
) -> None:
    spool = writer(tmp_path, segment_bytes=1)
    records = [request_record() for _ in range(4)]
    for record in records:
        spool.begin(record)
    reader = SpoolReader(spool.folder)
    reader.read(100)
    assert reader.release() == 0
    spool.end(records[0], finished(records[0]))
    reader.read(100)
    before = spool.bytes
    spool.released(reader.release())
    assert spool.bytes < before
    assert not segment_path(spool.folder, 1).exists()
    assert segment_path(spool.folder, 2).exists()


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 100])
def test_half_an_entry_at_the_end_is_left_out(tmp_path: Path, request_record: MakeRequest, cut: int) -> None:
    spool, whole, torn = writer(tmp_path), request_record(), request_record()
    spool.begin(whole)
    keep = spool.bytes
    spool.begin(torn)
    path = segment_path(spool.folder, 1)
    path.write_bytes(path.read_bytes()[: keep + cut])
    reader = SpoolReader(spool.folder)
    assert reader.read(100).entries == 1
    assert reader.unfinished() == [whole]


def test_a_damaged_entry_does_not_hide_later_segments(tmp_path: Path, request_record: MakeRequest) -> None:
    spool = writer(tmp_path, segment_bytes=1)
    records = [request_record() for _ in range(3)]
    for record in records:
        spool.begin(record)
    path = segment_path(spool.folder, 2)
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    reader = SpoolReader(spool.folder)
    reader.read(100)
    assert reader.unfinished() == [records[0], records[2]]
    assert reader.unread
    for index in (0, 2):
        spool.end(records[index], finished(records[index]))
    reader.read(100)
    reader.release()
    assert segment_path(spool.folder, 2).exists()
    assert not segment_path(spool.folder, 1).exists()


def test_a_full_spool_refuses_what_is_new_and_takes_what_ends(
    tmp_path: Path, request_record: MakeRequest, feedback_record: MakeFeedback
) -> None:
    spool, begun = writer(tmp_path, max_bytes=1), request_record()
    spool.begin(begun)
    with pytest.raises(SpoolFull, match="at most 1 are allowed"):
        spool.begin(request_record())
    with pytest.raises(SpoolFull):
        spool.feedback(feedback_record())
    spool.end(begun, finished(begun))
    assert SpoolReader(spool.folder).read(100).requests == [finished(begun)]


def test_a_disk_that_refuses_is_a_full_spool(
    tmp_path: Path, request_record: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = writer(tmp_path)
    monkeypatch.setattr("serve.record.spool.os.write", lambda file, data: 5)
    with pytest.raises(SpoolFull, match="took 5 of"):
        spool.begin(request_record())
    monkeypatch.undo()
    record = request_record()
    spool.begin(record)
    reader = SpoolReader(spool.folder)
    reader.read(100)
    assert reader.unfinished() == [record]


def test_a_disk_without_room_for_a_new_segment_is_a_full_spool_until_it_has_some(
    tmp_path: Path, request_record: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, first, refused, last = writer(tmp_path, segment_bytes=1), *(request_record() for _ in range(3))
    spool.begin(first)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("serve.record.spool.os.open", full)
    for _ in range(2):
        with pytest.raises(SpoolFull, match="No space left"):
            spool.begin(refused)
    monkeypatch.undo()
    spool.begin(last)
    reader = SpoolReader(spool.folder)
    reader.read(100)
    assert reader.unfinished() == [first, last]


def test_a_living_owner_keeps_its_folder(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    assert try_lock(spool.folder) is None
    spool.close()
    assert try_lock(spool.folder) is not None


def test_a_write_after_the_end_is_refused_whoever_has_the_descriptor_now(
    tmp_path: Path, request_record: MakeRequest
) -> None:
    spool = writer(tmp_path)
    spool.begin(begun := request_record())
    spool.close()
    with (tmp_path / "a").open("w") as one, (tmp_path / "b").open("w") as other:
        with pytest.raises(SpoolFull):
            spool.end(begun, finished(begun))
        spool.sync()
        assert (one.tell(), other.tell()) == (0, 0)
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["", ""]


def test_a_batch_ends_where_its_bytes_are_enough(tmp_path: Path, request_record: MakeRequest) -> None:
    spool = writer(tmp_path)
    for _ in range(5):
        spool.begin(request_record(completion="x" * 1000))
    reader = SpoolReader(spool.folder)
    assert [reader.read(100, max_bytes=3000).entries for _ in range(4)] == [2, 2, 1, 0]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    assert writer(tmp_path).folder != writer(tmp_path).folder
