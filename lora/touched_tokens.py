"""Tokens whose own rows an adapter changes: a prompt without them might not show it."""

import torch
from torch import Tensor

from lora.adapter import Adapter
from lora.base_copies import of_base
from lora.match_report import MatchReport
from lora.targets import BaseTargets
from lora.tensor_names import Part
from lora.tensor_reader import BaseReader, reading

_MOST = 6


def touched_tokens(
    adapter: Adapter, report: MatchReport, targets: BaseTargets, base: BaseReader
) -> tuple[int, ...]:
    """A few of them, those that are changed most; () where no row is changed by itself.

    Reads the adapter's own part of the token table, so it blocks. Raises what reading it raises.
    """
    module = report.modules.get(targets.embedding)
    if module is None:
        return ()
    if module.token_ids:
        return module.token_ids[:_MOST]
    with reading(adapter) as reader:
        columns = reader.find(module, Part.EMBEDDING_A)
        if columns is not None:
            return _largest(columns.float().abs().amax(dim=0))
        table = reader.find(module, Part.WEIGHT)
    if table is None:
        return ()
    own = of_base(base, f"{targets.embedding}.weight")
    return _largest((table.float() - own.float()).abs().amax(dim=1))


def _largest(changes: Tensor) -> tuple[int, ...]:
    found = torch.topk(changes, min(_MOST, len(changes)))
    return tuple(found.indices[found.values > 0].tolist())
