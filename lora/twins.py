"""Tensors that PEFT saves under two names: harmless where they are the same, a contradiction where not."""

from collections.abc import Iterable
from pathlib import Path

from lora.errors import InvalidWeights
from lora.file_access import accessing
from lora.safetensors_header import TensorInfo


def check_twins(weights: Path, twins: Iterable[tuple[TensorInfo, TensorInfo]]) -> None:
    """Raise InvalidWeights naming both where two tensors that ought to be one differ."""
    with accessing(weights), weights.open("rb") as file:
        for one, other in twins:
            contents = []
            for tensor in (one, other):
                file.seek(tensor.start)
                contents.append((tensor.dtype, tensor.shape, file.read(tensor.size)))
            if contents[0] != contents[1]:
                raise InvalidWeights("two tensors for one module differ", [one.name, other.name])
