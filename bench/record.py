"""What the request record costs: on the event loop for each request, and on its way to the database.

    python -m bench.record

The spool is on this machine's disk, the database is the embedded one. One record is a chat of 600 characters
answered by 600 characters.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from db import migrate, registry, requests
from db.database import Database
from db.embedded import EmbeddedPostgres
from db.rows import FeedbackRecord, RequestRecord
from serve.ids import uuid7
from serve.record import Recorder, SpoolWriter

RECORDS = 5_000
TEXT = "The wheel turns. " * 36


class Tables:
    def __init__(self, database: Database) -> None:
        self._database = database

    def requests(self, records: Sequence[RequestRecord]) -> None:
        requests.insert_batch(self._database, records)

    def feedback(self, records: Sequence[FeedbackRecord]) -> None:
        raise AssertionError("this benchmark sends no feedback")


def begun() -> RequestRecord:
    now = datetime.now(UTC)
    return RequestRecord(
        id=uuid7(),
        tenant="default",
        endpoint=None,
        requested_model="m",
        base_model="m",
        base_digest="sha256:" + "0" * 64,
        adapter_id=None,
        adapter_digest=None,
        assigned_adapter_id=None,
        variant="base",
        bucket=None,
        experiment=None,
        user_key="u",
        parent_id=None,
        api="chat",
        started_at=now,
        finished_at=now,
        finish_reason="interrupted",
        error=None,
        prompt_tokens=150,
        cached_tokens=0,
        completion_tokens=0,
        queue_ms=None,
        ttft_ms=None,
        duration_ms=0.0,
        sampling={"temperature": 0.7},
        stream=True,
        source="traffic",
        messages=[{"role": "user", "content": TEXT}],
        completion="",
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="noria-bench-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres")
        url = server.start()
        migrate.upgrade(url)
        with Database(url) as database:
            registry.register_base_model(database, "m", "sha256:" + "0" * 64, "/m")
            spool = SpoolWriter(Path(folder) / "spool", max_bytes=1 << 30)
            records = [begun() for _ in range(RECORDS)]
            started = time.perf_counter()
            for record in records:
                spool.begin(record)
                spool.end(
                    record, replace(record, finish_reason="stop", completion=TEXT, completion_tokens=150)
                )
            written = time.perf_counter() - started
            recorder = Recorder(spool, Tables(database))
            started = time.perf_counter()
            recorder.start()
            while recorder.state.stored < RECORDS:
                time.sleep(0.01)
            stored = time.perf_counter() - started
            recorder.stop(5)
        server.stop()
    print(f"on the loop: {written / RECORDS * 1e6:.0f} us a request (begin and end)")
    print(f"spool to database: {RECORDS / stored:.0f} records/s in batches of up to 500 entries")


if __name__ == "__main__":
    main()
