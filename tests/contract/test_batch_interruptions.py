"""Batches that are cancelled, expire, stand back, lose their gateway or their store, and go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import db.batches
import db.keys
import db.requests
from serve.order import BACKGROUND_FROM
from tests.contract.batch_work import change, counts, ended, lines_of, start, text_line


@pytest.fixture
def client(served: Any) -> Iterator[openai.OpenAI]:
    with served.client as client:
        yield client


@pytest.fixture
def slow(served: Any) -> Iterator[None]:
    """A step takes 20 ms."""
    for replica in served.replicas:
        replica.runner.before_run = lambda plan: time.sleep(0.02)
    yield
    for replica in served.replicas:
        replica.runner.before_run = None


@pytest.fixture
def quick_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.batches.desk.LEASE_S", 1.0)
    monkeypatch.setattr("serve.batches.desk.RENEW_S", 0.2)
    monkeypatch.setattr("serve.batches.desk.LOOK_S", 0.1)
    monkeypatch.setattr("serve.batches.parts.GATHER_S", 0.1)


def test_a_cancelled_batch_keeps_what_is_done(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None
) -> None:
    lines = [text_line(f"a{number}", f"{number}", max_tokens=8) for number in range(200)]
    made = start(client, lines)
    served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 0)
    told = client.batches.cancel(made.id)
    assert told.status == "cancelling"
    batch = ended(served, client, made.id)
    assert batch.status == "cancelled"
    assert batch.cancelled_at is not None
    total, completed, failed = counts(batch)
    assert total == 200
    assert 0 < completed < 200
    done = lines_of(client, batch.output_file_id)
    left = lines_of(client, batch.error_file_id)
    assert (len(done), failed) == (completed, 0)
    assert sorted(line["custom_id"] for line in done + left) == sorted(each["custom_id"] for each in lines)
    assert {line["error"]["code"] for line in left} == {"batch_cancelled"}
    assert {line["response"] for line in left} == {None}
    served.until(served.idle)
    with pytest.raises(openai.ConflictError, match="is cancelled"):
        client.batches.cancel(made.id)


def test_a_batch_whose_time_is_over_expires_with_what_is_done(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None
) -> None:
    with served.another(batch_lines=1) as other:  # another one takes it when this one leaves
        made = start(client, [text_line(f"a{number}", max_tokens=30) for number in range(300)])
        served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 0)
        change(served, made.id, "expires_at = now(), lease_no = lease_no + 1, lease_until = now()")
        batch = ended(other, client, made.id)
    assert (batch.status, batch.completed_at) == ("expired", None)
    done, left = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
    assert len(done) == batch.request_counts.completed > 0
    assert len({line["custom_id"] for line in done + left}) == len(done) + len(left) == 300
    assert {line["error"]["code"] for line in left} == {"batch_expired"}


def test_interactive_requests_go_before_those_of_a_batch(
    served: Any, client: openai.OpenAI, slow: None
) -> None:
    seen: list[int] = []
    for replica in served.replicas:
        add = replica.engine.add
        replica.engine.add = lambda request, *rest, add=add, **named: (
            seen.append(request.priority), add(request, *rest, **named))[1]  # fmt: skip
    try:
        ended(served, client, start(client, [text_line("a", priority=-(1 << 31))]).id)
        client.completions.create(
            model="base", prompt="hi", max_tokens=1, extra_body={"priority": (1 << 31) - 1}
        )
    finally:
        for replica in served.replicas:
            del replica.engine.add
    assert seen == [BACKGROUND_FROM, BACKGROUND_FROM - 1]


def test_another_gateway_goes_on_where_one_died(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.batches.desk.MAX_RUNS", 1)
    blocker = start(client, [text_line("b", max_tokens=500, ignore_eos=True)])
    served.until(lambda: client.batches.retrieve(blocker.id).status == "in_progress")
    with served.another(batch_lines=4) as other:
        lines = [text_line(f"a{number}", f"{number}", max_tokens=8) for number in range(60)]
        made = start(client, lines)
        desk = other.gateway.desk
        served.until(lambda: (made.id, 1) in desk._runs)
        served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 5)
        served.run(_die(desk))
        client.batches.cancel(blocker.id)
        batch = ended(served, client, made.id)
    assert (batch.status, counts(batch)) == ("completed", (60, 60, 0))
    answers = [line["custom_id"] for line in lines_of(client, batch.output_file_id)]
    assert sorted(answers) == sorted(each["custom_id"] for each in lines)
    assert db.batches.get(served.database, "default", made.id).lease_no == 2


async def _die(desk: Any) -> None:
    """What kill -9 leaves: no lease is given back, nothing under way is written."""

    async def never(*_: Any) -> None:
        return

    desk._release = desk._take = never
    await desk.close()


def test_what_a_dead_man_still_knows_does_not_count(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None
) -> None:
    made = start(client, [text_line(f"a{number}", f"{number}", max_tokens=8) for number in range(60)])
    served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 5)
    change(served, made.id, "lease_no = lease_no + 1, lease_until = now() + interval '1 minute'")
    served.until(lambda: not served.gateway.desk._runs)
    frozen = counts(client.batches.retrieve(made.id))
    served.until(served.idle)
    assert counts(client.batches.retrieve(made.id)) == frozen
    db.batches.renew(served.database, made.id, 2, 0.0)
    batch = ended(served, client, made.id)
    assert (batch.status, counts(batch)) == ("completed", (60, 60, 0))
    answers = [line["custom_id"] for line in lines_of(client, batch.output_file_id)]
    assert len(answers) == len(set(answers)) == 60


def test_a_batch_waits_for_a_store_that_is_away(
    served: Any, client: openai.OpenAI, slow: None, quick_leases: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.batches.desk.AGAIN_S", 0.2)
    store = Path(served.config.store_url.removeprefix("file://")) / "objects"
    aside = store.with_name("aside")
    made = start(client, [text_line(f"a{number}", f"{number}", max_tokens=8) for number in range(60)])
    served.until(lambda: client.batches.retrieve(made.id).request_counts.completed > 0)
    store.rename(aside)
    store.write_text("no folder")
    try:
        time.sleep(0.5)
        assert client.batches.retrieve(made.id).status == "in_progress"
    finally:
        store.unlink()
        aside.rename(store)
    batch = ended(served, client, made.id)
    assert (batch.status, counts(batch)) == ("completed", (60, 60, 0))
    assert len(lines_of(client, batch.output_file_id)) == 60
