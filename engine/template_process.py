"""The process in which chat templates of strangers are rendered: `python -m engine.template_process`.

A sandbox keeps a template from the machine, but not from asking for all of its time and memory, in one
operation or in many. Here the kernel says no: the address space is limited, and whatever takes longer than
it may ends the process. One line of JSON in, one out; ends with its input. Knows no tokens.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from functools import lru_cache
from typing import Any

from engine.chat_template import ChatTemplate
from engine.errors import BadTemplateInput, UnsupportedModel

MEMORY_BYTES = 512 << 20
"""Of address space, Python's own 60 MiB among them."""
CPU_S = 2.0
"""Of one task. A template of a kilobyte and a talk of a hundred messages take a millisecond."""
_KEPT = 16


def main() -> None:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # at its end SIGPROF, which nobody handles: the end
        answer = json.dumps(_answer(json.loads(line)))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def _answer(task: dict[str, Any]) -> dict[str, str]:
    try:
        template = _compiled(task["source"], tuple(task["special_tokens"].items()))
        if (talk := task["talk"]) is None:
            return {}
        text = template.render(
            talk["messages"],
            tools=talk["tools"],
            add_generation_prompt=talk["add_generation_prompt"],
            variables=talk["variables"],
        )
    except UnsupportedModel as error:
        return {"broken": str(error)}
    except BadTemplateInput as error:
        return {"refused": str(error)}
    return {"text": text}


@lru_cache(_KEPT)
def _compiled(source: str, special_tokens: tuple[tuple[str, str], ...]) -> ChatTemplate:
    return ChatTemplate(source, dict(special_tokens))


if __name__ == "__main__":
    main()
