"""Tensors of a base model, and whether a tensor of an adapter only repeats one."""

import torch
from torch import Tensor

from lora.adapter import Adapter
from lora.errors import BaseLacksTensor
from lora.match_report import MatchReport
from lora.tensor_names import Part
from lora.tensor_reader import BaseReader, reading

MADE_FROM_ANOTHER = "a saved module that was made from another one than the base's"
"""What is refused where a copy that PEFT keeps of the original does not repeat the base."""


def of_base(base: BaseReader, name: str) -> Tensor:
    """A tensor of the base, in the file's memory. Raises BaseLacksTensor."""
    tensor = base.take(name)
    if tensor is None:
        raise BaseLacksTensor(name)
    return tensor


def repeats(copy: Tensor, own: Tensor) -> bool:
    """Whether `copy` is the base's tensor, rounded to the dtype in which the adapter was saved."""
    return copy.shape == own.shape and torch.equal(copy, own.to(copy.dtype))


def repeated(adapter: Adapter, report: MatchReport, base: BaseReader) -> tuple[str, ...]:
    """Names of the tensors that a load drops as repeating the base's. Raises NotFinite, InvalidWeights."""
    if not report.copies:
        return ()
    found = []
    with reading(adapter) as reader:
        for name, module in report.modules.items():
            for part, own in ((Part.BASE_WEIGHT, "weight"), (Part.BASE_BIAS, "bias")):
                copy = reader.find(module, part)
                if copy is not None and repeats(copy, of_base(base, f"{name}.{own}")):
                    found.append(module.parts[part].name)
    return tuple(sorted(found))
