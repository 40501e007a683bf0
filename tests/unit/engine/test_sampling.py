"""What sampling parameters may be."""

import math
from typing import Any

import pytest

from engine.errors import InvalidParameter
from engine.sampling import SamplingParams


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"temperature": 0, "top_p": 1, "top_k": 50, "min_p": 0.1},
        {"presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": 1.3},
        {"seed": -5, "stop_token_ids": (2, 3), "ignore_eos": True, "min_tokens": 8, "logprobs": 20},
        {"logprobs": 0},
        {"logit_bias": ((0, -100.0), (7, 100)), "allowed_token_ids": (3,), "bad_words": ((1,), (2, 1))},
        {"logit_bias": tuple((token, 0.5) for token in range(1024))},
        {"prompt_logprobs": 20},
    ],
)
def test_valid_values_pass(values: dict[str, Any]) -> None:
    SamplingParams(max_tokens=8, **values).validate()


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 2.0),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("top_k", 1.0),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", math.nan),
        ("repetition_penalty", 0.0),
        ("seed", 1 << 63),
        ("seed", 1.5),
        ("stop_token_ids", (-1,)),
        ("stop_token_ids", ("a",)),
        ("ignore_eos", 1),
        ("min_tokens", -1),
        ("min_tokens", 9),
        ("logprobs", 21),
        ("logprobs", -1),
        ("logprobs", True),
        ("prompt_logprobs", 21),
        ("prompt_logprobs", -1),
        ("logit_bias", ((-1, 1.0),)),
        ("logit_bias", (("1", 1.0),)),
        ("logit_bias", ((1, 100.5),)),
        ("logit_bias", ((1, -101),)),
        ("logit_bias", ((1, math.nan),)),
        ("logit_bias", ((1, True),)),
        ("logit_bias", ((1, 1.0), (1, 2.0))),
        ("logit_bias", tuple((token, 0.5) for token in range(1025))),
        ("allowed_token_ids", ()),
        ("allowed_token_ids", (-1,)),
        ("allowed_token_ids", (1, 1)),
        ("bad_words", ((),)),
        ("bad_words", ((1,) * 65,)),
        ("bad_words", ((-1,),)),
        ("bad_words", ((1,),) * 257),
    ],
)
def test_a_wrong_value_is_refused_by_name(param: str, value: object) -> None:
    values: dict[str, Any] = {"max_tokens": 8, param: value}
    with pytest.raises(InvalidParameter) as caught:
        SamplingParams(**values).validate()
    assert caught.value.param == param
    assert caught.value.allowed


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", 0.5),
        ("repetition_penalty", 1.1),
        ("logit_bias", ((1, 1.0),)),
        ("allowed_token_ids", (1,)),
        ("bad_words", ((1,),)),
    ],
)
def test_beams_refuse_whatever_changes_logits(param: str, value: object) -> None:
    values: dict[str, Any] = {"temperature": 0, param: value}
    with pytest.raises(InvalidParameter) as caught:
        SamplingParams(max_tokens=8, beam_width=2, **values).validate()
    assert caught.value.param == param
    assert "in a beam search" in str(caught.value)
