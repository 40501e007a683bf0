"""A chat template that came with an adapter: rendered in a process of its own that may end by it.

Who frees what: TemplateProcesses owns its processes; whoever made it closes it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from engine.errors import BadTemplateInput, UnsupportedModel
from engine.template_process import CPU_S, MEMORY_BYTES

_ROOT = Path(__file__).parents[1]
_LIMITS = f"allowed: {CPU_S:g} s of one processor and {MEMORY_BYTES >> 20} MiB"


class TemplateProcesses:
    """Up to `number` processes, started when first needed and again after one has ended. For any thread."""

    def __init__(self, number: int) -> None:
        self._all = [_TemplateProcess() for _ in range(number)]
        self._free: SimpleQueue[_TemplateProcess] = SimpleQueue()
        for process in self._all:
            self._free.put(process)

    def ask(self, task: Mapping[str, Any]) -> dict[str, str] | None:
        """The answer to a task of engine.template_process, None where the process ended by it.

        Waits while all are at work.
        """
        process = self._free.get()
        try:
            return process.ask(json.dumps(task))
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes, also those at work."""
        for process in self._all:
            process.end()


class ConfinedTemplate:
    """Stands in for a ChatTemplate. Compiling it happens over there as well."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], processes: TemplateProcesses) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._processes = processes

    def check(self) -> None:
        """Raises UnsupportedModel where it does not parse, or takes too much to."""
        answer = self._ask(None)
        if answer is None:
            raise UnsupportedModel(f"the chat template does not parse within what it may take; {_LIMITS}")
        if "broken" in answer:
            raise UnsupportedModel(answer["broken"])

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        """The prompt text. Raises BadTemplateInput where the template refuses or takes too much."""
        answer = self._ask(
            {
                "messages": messages,
                "tools": tools,
                "add_generation_prompt": add_generation_prompt,
                "variables": variables,
            }
        )
        if answer is None:
            raise BadTemplateInput(f"the chat template took too long or too much memory; {_LIMITS}")
        if "text" not in answer:
            raise BadTemplateInput(answer.get("refused") or answer["broken"])
        return answer["text"]

    def _ask(self, talk: Mapping[str, Any] | None) -> dict[str, str] | None:
        return self._processes.ask(
            {"source": self.source, "special_tokens": self._special_tokens, "talk": talk}
        )


class _TemplateProcess:
    """One process, or none before the first task and after one that ended it. One task at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def ask(self, line: str) -> dict[str, str] | None:
        if self._child is None or self._child.poll() is not None:
            self.end()
            self._child = _start()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()
            answer = self._child.stdout.readline()
        except OSError:  # it ended while it was written to
            answer = ""
        if not answer.endswith("\n"):
            self.end()
            return None
        parsed: dict[str, str] = json.loads(answer)
        return parsed

    def end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine.template_process"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="ascii",
    )
