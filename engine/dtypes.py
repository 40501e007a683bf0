"""Names of element types in settings, and torch's own. For modules that load torch anyway."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from engine.config import Dtype

DTYPES: Mapping[Dtype, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
