"""An adapter's tensors in the form the engine takes: gains, shifts and replaced parts worked out, in float32.

What PEFT keeps beside the two matrices is told to the engine as a difference from the base, so the base's own
tensors are read here: norms of its rows for DoRA, its biases where the adapter has others, its tables.
"""

import torch
from torch import Tensor

from engine.adapter_weights import AdapterWeights, Affine, LoraPair, NormWeights
from lora.adapter import Adapter
from lora.base_copies import MADE_FROM_ANOTHER, of_base, repeats
from lora.dora import row_gain
from lora.errors import UnsupportedFeature
from lora.match_report import MatchedModule, MatchReport
from lora.tables import build_tables
from lora.targets import HEAD, BaseTargets
from lora.tensor_names import Part
from lora.tensor_reader import BaseReader, TensorReader, as_dtype, finite, reading


def load_weights(
    adapter: Adapter, report: MatchReport, targets: BaseTargets, base: BaseReader, dtype: torch.dtype
) -> AdapterWeights:
    """Read every matched tensor onto the CPU, matrices as `dtype`, in memory of its own, not the file's.

    Matrices that a gain was multiplied into stay float32, so that an engine rounds them once.
    Raises NotFinite if a tensor holds NaN or infinity, also where only `dtype` or the base makes it so,
    UnsupportedFeature for what does not go together, InvalidWeights.
    """
    maker = _Maker(targets, base, dtype)
    with reading(adapter) as reader:
        for name, module in report.modules.items():
            if name in targets.norms:
                maker.add_norm(name, module, reader)
            elif name not in (targets.embedding, HEAD):
                maker.add_linear(name, module, reader)
        tables = build_tables(report, targets, base, reader, dtype)
        if tables.head_linear:
            maker.add_linear(HEAD, report.modules[HEAD], reader)
    return AdapterWeights(
        adapter.digest,
        maker.pairs,
        affine=maker.affine,
        norms=maker.norms,
        embedding=tables.embedding,
        table=tables.table,
        head=tables.head,
        tokens=tables.tokens,
        invocation=adapter.config.invocation,
    )


class _Maker:
    """Collects what linear modules and norms become."""

    def __init__(self, targets: BaseTargets, base: BaseReader, dtype: torch.dtype) -> None:
        self._targets, self._base, self._dtype = targets, base, dtype
        self.pairs: dict[str, LoraPair] = {}
        self.affine: dict[str, Affine] = {}
        self.norms: dict[str, NormWeights] = {}

    def add_linear(self, name: str, module: MatchedModule, reader: TensorReader) -> None:
        gain = None
        if Part.A in module.parts:
            a, b = reader.get(module, Part.A), reader.get(module, Part.B)
            if (magnitude := reader.find(module, Part.MAGNITUDE)) is not None:
                weight = of_base(self._base, f"{name}.weight")
                gain = finite(
                    module.parts[Part.MAGNITUDE].name, row_gain(magnitude, weight, a, b, module.scale)
                )
            self.pairs[name] = self._pair(module, a, b, gain)
        shift = self._shift(name, module, reader, gain)
        if gain is not None or shift is not None:
            self.affine[name] = Affine(gain, shift)

    def add_norm(self, name: str, module: MatchedModule, reader: TensorReader) -> None:
        for part, own in ((Part.BASE_WEIGHT, "weight"), (Part.BASE_BIAS, "bias")):
            copy = reader.find(module, part)
            if copy is not None and not repeats(copy, of_base(self._base, f"{name}.{own}")):
                raise UnsupportedFeature(MADE_FROM_ANOTHER, module.parts[part].name)
        weight = reader.find(module, Part.WEIGHT)
        bias = reader.find(module, Part.BIAS)
        if weight is None and bias is None:
            return
        if weight is None:
            weight = of_base(self._base, f"{name}.weight")
        self.norms[name] = NormWeights(
            as_dtype(f"{name}.weight", weight, self._dtype),
            None if bias is None else as_dtype(f"{name}.bias", bias, self._dtype),
        )

    def _pair(self, module: MatchedModule, a: Tensor, b: Tensor, gain: Tensor | None) -> LoraPair:
        a_name, b_name = module.parts[Part.A].name, module.parts[Part.B].name
        b = as_dtype(b_name, b, self._dtype) if gain is None else finite(b_name, gain[:, None] * b.float())
        return LoraPair(as_dtype(a_name, a, self._dtype), b, module.scale)

    def _shift(
        self, name: str, module: MatchedModule, reader: TensorReader, gain: Tensor | None
    ) -> Tensor | None:
        """What is added behind the gain: the bias as the adapter has it, less the base's with the gain."""
        own = of_base(self._base, f"{name}.bias").float() if name in self._targets.biases else None
        new = reader.find(module, Part.BIAS)
        added = reader.find(module, Part.B_BIAS)
        shift = None
        if new is not None and own is not None:
            shift = new.float() - (own if gain is None else gain * own)
        elif own is not None and gain is not None:
            shift = (1 - gain) * own
        if added is not None:
            scaled = module.scale * added.float()
            shift = scaled if shift is None else shift + scaled
        return None if shift is None else finite(f"{name}.bias", shift)
