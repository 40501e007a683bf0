"""What the command shows: progress lines and tables on standard output, problems on standard error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print `rows` under `columns`; an empty table says so."""
    view = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        view.add_column(column, overflow="fold", no_wrap=column == columns[0])
    count = 0
    for row in rows:
        view.add_row(*("" if cell is None else str(cell) for cell in row))
        count += 1
    out.print(view if count else f"{title}: none")


def as_json(value: Any) -> None:
    """Print `value` as one JSON document, for scripts."""
    out.print_json(json.dumps(value, default=str))
