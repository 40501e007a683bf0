"""The trainer process: `python -m pipeline.trainer job.json`.

Reads the job and its rows, trains with TRL and PEFT, checks the adapter and saves it into the job's output
folder. It knows no database, no store and no registry; it tells its parent what it does by events on its
standard output, and ends when the parent closes its standard input (the parent died or gave up).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pipeline.errors import PipelineError
from pipeline.job import Job
from pipeline.methods import get_method
from pipeline.progress import EventStream

ADAPTER = "adapter"
"""Folder under the job's output folder that holds the finished adapter."""


def main(arguments: list[str]) -> int:
    """Run one job; exit status 0 when the adapter is saved, 1 when the job was refused or failed."""
    events = EventStream(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # whatever a library prints goes to the log, never between the events
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        run(Job.read(Path(arguments[0])), events)
    except PipelineError as error:
        events.send("failed", kind=type(error).__name__, message=str(error))
        return 1
    return 0


def run(job: Job, events: EventStream) -> None:
    """Train one job from start to saved adapter. Raises: PipelineError."""
    os.nice(job.nice)
    events.send("stage", stage="loading")
    import torch
    from transformers import AutoTokenizer

    from pipeline.checks import check_losses, check_stops, check_tensors, stamp_base

    torch.set_num_threads(job.threads)
    started = time.monotonic()
    method = get_method(job.method)
    options = method.parse(job.options)
    tokenizer = AutoTokenizer.from_pretrained(job.base_folder, local_files_only=True)
    rows = [json.loads(line) for line in Path(job.rows_file).read_text(encoding="utf-8").splitlines()]
    prepared = method.prepare(rows, options, job, tokenizer)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    events.send("rows", device=device, **prepared.figures)

    curve = _curve_callback(events)
    trainer = method.trainer(prepared, options, job, tokenizer, [curve], events)
    trainer.train()

    events.send("stage", stage="checking")
    check_losses(curve.losses)
    norms = check_tensors(trainer.model.named_parameters())
    stops = check_stops(trainer.model, prepared.probes)
    folder = Path(job.output_folder) / ADAPTER
    trainer.model.save_pretrained(folder, selected_adapters=["default"])
    stamp_base(folder, job.base_name, job.base_digest)
    events.send(
        "done", seconds=time.monotonic() - started, steps=len(curve.losses), device=device, **norms, **stops
    )


def _curve_callback(events: EventStream) -> Any:
    """A TrainerCallback that reports each step and stops the run at the first loss that is not finite."""
    import math

    from transformers import TrainerCallback

    class Curve(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
        def __init__(self) -> None:
            self.losses: list[float] = []
            self._at = time.monotonic()

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._at = time.monotonic()
            events.send("stage", stage="training", step=0, steps=state.max_steps)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if not logs or "loss" not in logs:
                return
            loss, now = float(logs["loss"]), time.monotonic()
            self.losses.append(loss)
            events.send(
                "step",
                step=state.global_step,
                steps=state.max_steps,
                loss=loss,
                grad_norm=float(logs.get("grad_norm", 0.0)),
                kl=float(logs.get("kl", 0.0)),
                margin=float(logs.get("rewards/margins", 0.0)),
                seconds=now - self._at,
            )
            self._at = now
            if not math.isfinite(loss):
                control.should_training_stop = True

    return Curve()


def _end_with_parent() -> None:
    """The parent holds our standard input open as long as it wants us alive."""
    while os.read(0, 1024):
        pass
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
