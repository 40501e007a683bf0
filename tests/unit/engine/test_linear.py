"""Every product behind the seam gives torch's own result, for any number of rows."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from engine.models.linear import make_linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 3, 64, 200])
@pytest.mark.parametrize("biased", [False, True])
def test_product_equals_torch(dtype: torch.dtype, rows: int, biased: bool) -> None:
    torch.manual_seed(rows)
    weight, x = torch.randn(40, 24, dtype=dtype), torch.randn(rows, 24, dtype=dtype)
    bias = torch.randn(40, dtype=dtype) if biased else None
    got = make_linear(weight, bias)(x)
    assert got.dtype is dtype
    torch.testing.assert_close(got, F.linear(x, weight, bias))


def test_result_is_the_caller_s_to_change() -> None:
    linear = make_linear(torch.randn(8, 8, dtype=torch.bfloat16))
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    first = linear(x)
    kept = first.clone()
    first += 1
    assert torch.equal(linear(x), kept)
