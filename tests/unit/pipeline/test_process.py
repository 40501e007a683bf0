"""The trainer process as its parent sees it, with small programs in the trainer's place."""

import os
import sys
import textwrap
from pathlib import Path

import pytest

from pipeline import process
from pipeline.errors import TrainingFailed
from pipeline.process import trainer_process


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `stand_in.py` runs instead of the trainer; the job file comes as its argument."""
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {tmp_path}/stand_in.py "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.setattr(process, "PATIENCE_S", 0.5)
    return tmp_path


def program(folder: Path, body: str) -> None:
    (folder / "stand_in.py").write_text("import json, os, signal, sys, time\n" + textwrap.dedent(body))


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def run(folder: Path) -> list[str]:
    with trainer_process(folder / "job.json", folder / "trainer.log", threads=3) as events:
        return [event.name for event in events]


def test_events_come_in_order_and_the_end_is_clean(stand_in: Path) -> None:
    program(stand_in, 'print(\'{"event": "stage"}\'); print(\'{"event": "done"}\')')
    assert run(stand_in) == ["stage", "done"]


def test_the_process_is_told_to_stay_offline_and_how_many_threads_it_has(stand_in: Path) -> None:
    program(
        stand_in,
        """
        names = ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")
        print(json.dumps({"event": "rows", **{name: os.environ[name] for name in names}}))
        print('{"event": "done"}')
        """,
    )
    with trainer_process(stand_in / "job.json", stand_in / "trainer.log", threads=3) as events:
        first = next(events)
    assert first.figures == {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "3",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def test_a_refusal_arrives_in_the_trainers_own_words(stand_in: Path) -> None:
    program(stand_in, 'print(\'{"event": "failed", "kind": "TooManyDropped", "message": "20 of 40"}\')')
    with pytest.raises(TrainingFailed, match="TooManyDropped: 20 of 40"):
        run(stand_in)


def test_a_crash_arrives_with_the_end_of_the_log(stand_in: Path) -> None:
    program(stand_in, 'raise SystemError("out of tea")')
    with pytest.raises(TrainingFailed, match=r"status 1(.|\n)*out of tea"):
        run(stand_in)


def test_an_end_without_a_result_is_a_failure_though_the_status_is_zero(stand_in: Path) -> None:
    program(stand_in, 'print(\'{"event": "stage"}\')')
    with pytest.raises(TrainingFailed, match="status 0"):
        run(stand_in)


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_interrupt_in_the_parent_ends_the_process(stand_in: Path, stubborn: bool) -> None:
    program(
        stand_in,
        f"""
        if {stubborn}:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(json.dumps({{"event": "rows", "pid": os.getpid()}}), flush=True)
        time.sleep(60)
        """,
    )
    pids: list[int] = []

    def interrupted() -> None:
        with trainer_process(stand_in / "job.json", stand_in / "trainer.log", threads=1) as events:
            pids.append(next(events).figures["pid"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert gone(pids[0])
