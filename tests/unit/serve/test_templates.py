"""Adapters' own chat templates: compiled once, and not kept without bound."""

from types import SimpleNamespace
from typing import Any, cast

from serve.templates import AdapterTemplates


class Tokenizer:
    def __init__(self) -> None:
        self.compiled: list[str] = []

    def compile_template(self, source: str) -> Any:
        self.compiled.append(source)
        return SimpleNamespace(source=source)


def route(tokenizer: Tokenizer, source: str | None, model: str = "m") -> Any:
    return cast(
        Any, SimpleNamespace(model=SimpleNamespace(name=model, tokenizer=tokenizer), chat_template=source)
    )


def test_a_template_is_compiled_once_for_each_base_model() -> None:
    tokenizer, templates = Tokenizer(), AdapterTemplates()
    first = templates.of(route(tokenizer, "a"))
    assert templates.of(route(tokenizer, "a")) is first
    assert templates.of(route(tokenizer, "a", "other")) is not first
    assert tokenizer.compiled == ["a", "a"]


def test_without_a_template_of_its_own_there_is_none() -> None:
    assert AdapterTemplates().of(route(Tokenizer(), None)) is None


def test_the_one_unused_for_longest_goes_first() -> None:
    tokenizer, templates = Tokenizer(), AdapterTemplates(kept=2)
    for source in ("a", "b", "a", "c", "a", "b"):
        found = templates.of(route(tokenizer, source))
        assert found is not None
        assert found.source == source
        assert len(templates) <= 2
    assert tokenizer.compiled == ["a", "b", "c", "b"]
