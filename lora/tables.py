"""What an adapter makes of the two tables of tokens, the embedding and the head, which may be one.

Both backends apply a low-rank change beside a table that stays as it is. Where the adapter brings another
table, or rows of its own for a head that has a low-rank change too, everything is put into one new table.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.adapter_weights import EmbeddingDelta, TokenRows
from lora.base_copies import MADE_FROM_ANOTHER, of_base, repeats
from lora.dora import column_gain, folded, row_gain
from lora.errors import InvalidWeights, UnsupportedFeature
from lora.match_report import MatchedModule, MatchReport
from lora.targets import HEAD, BaseTargets
from lora.tensor_names import Part
from lora.tensor_reader import BaseReader, TensorReader, as_dtype, finite


@dataclass(slots=True)
class Tables:
    """Fields as in AdapterWeights. head_linear: the head is changed as a linear module is."""

    embedding: EmbeddingDelta | None = None
    table: Tensor | None = None
    head: Tensor | None = None
    tokens: TokenRows | None = None
    head_linear: bool = False


def build_tables(
    report: MatchReport, targets: BaseTargets, base: BaseReader, reader: TensorReader, dtype: torch.dtype
) -> Tables:
    """Raises NotFinite, UnsupportedFeature or InvalidWeights."""
    return _Builder(report, targets, base, reader, dtype).build()


class _Builder:
    def __init__(
        self,
        report: MatchReport,
        targets: BaseTargets,
        base: BaseReader,
        reader: TensorReader,
        dtype: torch.dtype,
    ) -> None:
        self._targets, self._base, self._reader, self._dtype = targets, base, reader, dtype
        nothing = MatchedModule({}, 0, 1.0)
        self._input = report.modules.get(targets.embedding, nothing)
        self._output = report.modules.get(HEAD, nothing)
        self._in_head = report.tokens_in_head
        self._made = Tables()

    def build(self) -> Tables:
        table, head = self._other(self._targets.embedding, self._input), self._other(HEAD, self._output)
        if self._targets.tied:
            table, head = self._agree(table, head)
        rows = self._reader.find(self._input, Part.TOKENS)
        shared = rows if self._in_head else None
        self._make_head(head, shared)
        self._make_table(table, rows)
        return self._made

    def _other(self, name: str, module: MatchedModule) -> Tensor | None:
        """The base's table that the adapter brings, None where it brings none or the one we have."""
        copy = self._reader.find(module, Part.BASE_WEIGHT)
        if copy is None:
            return None
        if repeats(copy, of_base(self._base, f"{name}.weight")):
            return None
        if Part.WEIGHT in module.parts:
            raise UnsupportedFeature(MADE_FROM_ANOTHER, module.parts[Part.BASE_WEIGHT].name)
        return copy

    def _agree(self, table: Tensor | None, head: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """A tied model has one table: what replaces the one replaces the other."""
        both = [module.parts.get(Part.BASE_WEIGHT) for module in (self._input, self._output)]
        given = [tensor.name for tensor in both if tensor is not None]
        if len(given) == 2 and not _same(table, head):
            raise InvalidWeights("the base's head is its token table, and these two differ", given)
        other = table if table is not None else head
        return other, None if Part.WEIGHT in self._output.parts else other

    def _make_head(self, other: Tensor | None, shared: Tensor | None) -> None:
        module = self._output
        if Part.WEIGHT in module.parts:
            self._made.head = self._as_table(HEAD, self._reader.get(module, Part.WEIGHT))
            return
        rows, ids = self._reader.find(module, Part.TOKENS), module.token_ids
        changed = Part.A in module.parts
        if shared is not None and (changed or other is not None):
            rows, ids, self._in_head = shared, self._input.token_ids, False
        if other is None and rows is None:
            self._made.head_linear = changed
            return
        weight = _with_rows(other if other is not None else of_base(self._base, f"{HEAD}.weight"), rows, ids)
        self._made.head = self._as_table(HEAD, self._changed_head(weight) if changed else weight)

    def _changed_head(self, weight: Tensor) -> Tensor:
        module = self._output
        if Part.B_BIAS in module.parts:
            raise UnsupportedFeature("lora_bias of a head with rows or a matrix of its own", HEAD)
        a, b = self._reader.get(module, Part.A), self._reader.get(module, Part.B)
        merged = folded(weight, b, a, module.scale)
        if (magnitude := self._reader.find(module, Part.MAGNITUDE)) is not None:
            merged *= row_gain(magnitude, weight, a, b, module.scale)[:, None]
        return merged

    def _make_table(self, other: Tensor | None, rows: Tensor | None) -> None:
        module, name = self._input, self._targets.embedding
        if Part.WEIGHT in module.parts:
            self._made.table = self._as_table(name, self._reader.get(module, Part.WEIGHT))
        elif Part.EMBEDDING_A in module.parts:
            self._change_table(other)
        elif other is not None:
            self._made.table = self._as_table(name, _with_rows(other, rows, module.token_ids))
        elif rows is not None:
            ids, order = torch.tensor(module.token_ids).sort()
            self._made.tokens = TokenRows(ids, self._as_table(name, rows[order]), self._in_head)

    def _change_table(self, other: Tensor | None) -> None:
        """The embedding's low-rank change, beside the base's table or inside another one."""
        module, name = self._input, self._targets.embedding
        a, b = self._reader.get(module, Part.EMBEDDING_A), self._reader.get(module, Part.EMBEDDING_B)
        weight = other if other is not None else of_base(self._base, f"{name}.weight")
        gain = None
        if (magnitude := self._reader.find(module, Part.MAGNITUDE)) is not None:
            gain = finite(name, column_gain(magnitude, weight, a, b, module.scale))
        if other is not None:
            merged = folded(weight, a.T, b.T, module.scale)
            self._made.table = self._as_table(name, merged if gain is None else merged * gain)
            return
        b = b.to(self._dtype) if gain is None else gain[:, None] * b.float()
        a = as_dtype(module.parts[Part.EMBEDDING_A].name, a, self._dtype)
        b = finite(module.parts[Part.EMBEDDING_B].name, b)
        self._made.embedding = EmbeddingDelta(a, b, module.scale, gain)

    def _as_table(self, name: str, tensor: Tensor) -> Tensor:
        return as_dtype(f"{name}.weight", tensor, self._dtype)


def _with_rows(table: Tensor, rows: Tensor | None, ids: tuple[int, ...]) -> Tensor:
    """A table with other rows for some tokens, in the wider of the two dtypes."""
    if rows is None:
        return table
    wide = table.to(torch.promote_types(table.dtype, rows.dtype), copy=True)
    wide[torch.tensor(ids)] = rows.to(wide.dtype)
    return wide


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one, other)
