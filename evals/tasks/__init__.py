"""The tasks: one file each, one line here."""

from evals.errors import UnknownTask
from evals.tasks.base import Task
from evals.tasks.brevity import Brevity
from evals.tasks.facts import Facts
from evals.tasks.language import Language
from evals.tasks.stops import Stops

TASKS: dict[str, Task] = {task.name: task for task in (Brevity(), Facts(), Language(), Stops())}


def get_task(name: str) -> Task:
    """Raises: UnknownTask."""
    if name not in TASKS:
        raise UnknownTask(name, tuple(sorted(TASKS)))
    return TASKS[name]
