"""Templates of strangers: what they write is what a ChatTemplate writes, and what they take is bounded."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine.chat_template import ChatTemplate
from engine.confined_template import ConfinedTemplate, TemplateProcesses
from engine.errors import BadTemplateInput, UnsupportedModel

SPECIAL = {"bos_token": "<s>"}
TALK = [{"role": "user", "content": "grüße \U0001f600\n\"'\\ \x00"}]
DOUBLED = (
    "{% set n = namespace(x='abcdefgh') %}{% for _ in range(60) %}{% set n.x = n.x OP n.x %}{% endfor %}"
)

TOO_MUCH_TO_RENDER = {
    "multiplied text": "{{ messages[0].role * 10 ** 10 }}",
    "multiplied list": "{{ [messages] * 10 ** 10 }}",
    "joined text": DOUBLED.replace("OP", "~"),
    "added text": DOUBLED.replace("OP", "+"),
    "lists of lists": DOUBLED.replace("n.x OP n.x", "[n.x, n.x]") + "{{ n.x }}",
    "filter": "{{ messages[0].role | center(10 ** 10) }}",
    "format": "{{ '{:>10000000000}'.format(messages[0].role) }}",
    "long prompt": "{% for _ in range(100000) %}" + "x" * 100 + "{% endfor %}",
    "endless loops": "{% for _ in range(100000) %}" * 4 + "{% endfor %}" * 4,
    "one endless operation": "{{ (messages | length + 9) ** (10 ** 9) }}",
    "constant text": "{{ 'a' * 10 ** 10 }}",
}


@pytest.fixture(scope="module")
def processes() -> Iterator[TemplateProcesses]:
    made = TemplateProcesses(1)
    yield made
    made.close()


def confined(source: str, processes: TemplateProcesses) -> ConfinedTemplate:
    return ConfinedTemplate(source, SPECIAL, processes)


def rendered(template: ChatTemplate | ConfinedTemplate, **variables: Any) -> str:
    return template.render(TALK, tools=None, add_generation_prompt=True, variables=variables)


@pytest.mark.parametrize(
    "source",
    [
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}",
        "{{ flavour.kind }}{{ add_generation_prompt }}{{ tools }}{{ documents }}{{ missing }}",
        "{{ messages | tojson }}",
        "",
    ],
)
def test_it_writes_what_a_chat_template_writes(source: str, processes: TemplateProcesses) -> None:
    variables: dict[str, Any] = {"flavour": {"kind": "süß \ud800"}}
    want = rendered(ChatTemplate(source, SPECIAL), **variables)
    template = confined(source, processes)
    template.check()
    assert rendered(template, **variables) == want


def test_its_own_refusal_is_told(processes: TemplateProcesses) -> None:
    with pytest.raises(BadTemplateInput, match="roles must alternate"):
        rendered(confined("{{ raise_exception('roles must alternate') }}", processes))
    with pytest.raises(UnsupportedModel, match="does not parse"):
        confined("{% for %}", processes).check()


@pytest.mark.parametrize("source", TOO_MUCH_TO_RENDER.values(), ids=TOO_MUCH_TO_RENDER.keys())
def test_what_takes_too_much_is_refused(source: str, processes: TemplateProcesses) -> None:
    with pytest.raises(BadTemplateInput, match="the chat template"):
        rendered(confined(source, processes))
    assert rendered(confined("{{ bos_token }}", processes)) == "<s>"


def test_a_refusal_has_a_reason_also_where_the_error_has_no_text(processes: TemplateProcesses) -> None:
    with pytest.raises(BadTemplateInput, match="refused the messages: MemoryError"):
        rendered(confined("{{ messages[0].role * 10 ** 10 }}", processes))


def test_what_takes_too_long_to_compile_is_refused(processes: TemplateProcesses) -> None:
    with pytest.raises(UnsupportedModel, match="does not parse within what it may take"):
        confined("{{ 10 ** (10 ** 9) }}", processes).check()
    assert rendered(confined("{{ bos_token }}", processes)) == "<s>"


def test_processes_that_were_closed_begin_anew() -> None:
    processes = TemplateProcesses(1)
    template = confined("{{ bos_token }}", processes)
    assert rendered(template) == "<s>"
    processes.close()
    assert rendered(template) == "<s>"
    processes.close()
