"""Runs the trainer process and reads its events. It knows no database and no training method.

The process has its own session, so a Ctrl-C in the terminal reaches the parent alone; it ends with the parent
in any case, because its standard input is a pipe that the parent holds open.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.errors import TrainingFailed
from pipeline.progress import Event, parse_event

PATIENCE_S = 5.0
"""How long the process may take to end after SIGTERM."""
LOG_TAIL = 2000


@contextmanager
def trainer_process(job_file: Path, log_file: Path, threads: int) -> Iterator[Iterator[Event]]:
    """Start `python -m pipeline.trainer`, yield its events; whatever leaves the block, the process is gone.

    Reading on to the end raises TrainingFailed when the process ended without a "done" event.
    """
    with log_file.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.trainer", str(job_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env={**os.environ, **_environment(job_file.parent, threads)},
        )
        try:
            yield _events(process, log_file)
        finally:
            _end(process)


def _events(process: subprocess.Popen[str], log_file: Path) -> Iterator[Event]:
    assert process.stdout is not None, "the pipe was asked for"
    done = False
    for line in process.stdout:
        event = parse_event(line)
        if event.name == "failed":
            raise TrainingFailed(f"{event.figures['kind']}: {event.figures['message']}")
        done = done or event.name == "done"
        yield event
    status = process.wait()
    if not done or status != 0:
        tail = log_file.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:].strip()
        raise TrainingFailed(f"the trainer ended with status {status}; the end of {log_file}:\n{tail}")


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _environment(work: Path, threads: int) -> dict[str, str]:
    """No network, no telemetry, no bars between log lines, threads that sleep while they wait."""
    return {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_CACHE": str(work / "cache"),
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
    }
