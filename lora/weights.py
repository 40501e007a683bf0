"""An adapter's tensors in the form the engine takes. The one place of this package where tensors are read."""

import torch
from safetensors import safe_open

from engine.adapter_weights import AdapterWeights, LoraPair
from lora.errors import NotFinite
from lora.format import Adapter, MatchReport


def load_weights(adapter: Adapter, report: MatchReport, dtype: torch.dtype) -> AdapterWeights:
    """Read every matched pair onto the CPU as `dtype`, in memory of its own, not the file's.

    Raises NotFinite if a tensor holds NaN or infinity, also where only `dtype` makes it infinite.
    """
    modules = {}
    with safe_open(adapter.weights_file, framework="pt") as file:
        for name, module in report.modules.items():
            a, b = (
                _finite(info.name, file.get_tensor(info.name).to(dtype, copy=True))
                for info in (module.pair.a, module.pair.b)
            )
            modules[name] = LoraPair(a, b, module.scale)
    return AdapterWeights(adapter.digest, modules)


def weights_bytes(weights: AdapterWeights) -> int:
    """Host memory that the pairs take."""
    return sum(tensor.nbytes for pair in weights.modules.values() for tensor in (pair.a, pair.b))


def _finite(name: str, tensor: torch.Tensor) -> torch.Tensor:
    wrong = tensor.numel() - int(torch.isfinite(tensor).sum())
    if wrong:
        raise NotFinite(name, wrong)
    return tensor
