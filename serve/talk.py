"""A conversation as a chat template is to be given it, and the calls that its answer may hold.

Plain data: knows no body and no tokenizer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Talk:
    """messages, tools: as templates read them, the arguments of earlier calls as objects.

    variables: further ones for the template, by name. add_generation_prompt: the prompt ends with the
    beginning of an answer. continue_final_message: it ends within the last message instead.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls in an answer to a talk with tools.

    offered: functions that may be called, name -> JSON Schema of the arguments. demanded: those of which one
    has to be; none where the model decides. parallel: whether there may be several. named: the client chose
    the one function.
    """

    demanded: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    offered: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parallel: bool = True
    named: bool = False
