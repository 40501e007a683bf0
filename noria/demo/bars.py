"""A progress bar over answers that come in, with the tokens they bring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from noria.demo.traffic import Answer, Tick


@contextmanager
def answers_bar(console: Console, title: str, total: int) -> Iterator[Tick]:
    """Yield a function to call with each answer that has ended."""
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[tokens]} tokens"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total, tokens=0)
        tokens = 0

        def tick(answer: Answer) -> None:
            nonlocal tokens
            tokens += answer.tokens
            progress.update(task, advance=1, tokens=tokens)

        yield tick
