"""How other ways of holding the same decoder name its modules, and which of them an adapter uses."""

from collections.abc import Collection
from dataclasses import dataclass

from lora.targets import HEAD


@dataclass(frozen=True, slots=True)
class Renaming:
    """Names under `old` in the adapter are names under `new` in the served model. Both may be empty."""

    old: str
    new: str

    def to_base(self, name: str) -> str:
        """The served model's name of the adapter's module."""
        return name if self._spares(name) else _swap(name, self.old, self.new)

    def to_adapter(self, module: str) -> str:
        """The adapter's name of the served model's module."""
        return module if self._spares(module) else _swap(module, self.new, self.old)

    def _spares(self, name: str) -> bool:
        """The head is beside the decoder, not in it."""
        return name == HEAD and not self.old


SAME = Renaming("", "")


def _swap(name: str, old: str, new: str) -> str:
    return new + name[len(old) :] if name.startswith(old) else name


def find_renaming(names: Collection[str], modules: Collection[str], embedding: str) -> Renaming:
    """The renaming under which most of the adapter's `names` are `modules` of the served model.

    embedding: the token table's name there, which tells what the decoder's modules are below.
    """
    return max(
        _known(embedding), key=lambda renaming: sum(renaming.to_base(name) in modules for name in names)
    )


def _known(embedding: str) -> list[Renaming]:
    """Plain names first: of several that match as many, the first is taken."""
    root = embedding.partition(".")[0] + "."
    return [
        SAME,
        Renaming("", root),  # the decoder without its head
        Renaming("language_model.", ""),  # a language model inside a vision model, transformers 4
        Renaming(f"{root}language_model.", root),  # the same, transformers 5
        Renaming("module.", ""),  # data parallel
    ]
