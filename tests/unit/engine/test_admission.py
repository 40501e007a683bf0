"""What is refused before anything is allocated, with both numbers."""

from pathlib import Path
from typing import Any

import pytest

from engine.activation import NEVER
from engine.admission import check_request, make_sequence, measure_room
from engine.config import EngineConfig
from engine.errors import InvalidConfig, InvalidParameter, PromptTooLong, TooLargeForPool
from engine.fake_runner import EOS, FakeRunner, FakeWeights
from engine.records import Request, SamplingParams
from engine.token_mask import mask_of


def _request(prompt_len: int, max_tokens: int = 8, **sampling: Any) -> Request:
    return Request("r", (1,) * prompt_len, SamplingParams(max_tokens=max_tokens, **sampling))


def _room(*, num_blocks: int = 10, model_len: int = 1024, max_model_len: int | None = None) -> Any:
    config = EngineConfig(model=Path("m"), max_model_len=max_model_len)
    return measure_room(config, FakeRunner(num_blocks=num_blocks, model_len=model_len))


def test_the_model_length_is_the_least_of_model_pool_and_setting() -> None:
    assert _room(num_blocks=10).max_model_len == 160
    assert _room(num_blocks=100).max_model_len == 1024
    assert _room(max_model_len=50).max_model_len == 50
    with pytest.raises(InvalidConfig, match="max_model_len is 2000; the model allows 1024"):
        _room(max_model_len=2000)


def test_a_prompt_must_leave_room_for_one_token() -> None:
    assert check_request(_request(159), _room()) == 1
    with pytest.raises(PromptTooLong) as caught:
        check_request(_request(160), _room())
    assert (caught.value.got, caught.value.allowed) == (160, 159)


def test_max_tokens_is_clamped_to_the_room_left() -> None:
    assert check_request(_request(100, 60), _room()) == 60
    assert check_request(_request(100, 61), _room()) == 60
    assert check_request(_request(100, 10**9), _room()) == 60


def test_what_can_never_fit_the_pool_is_refused() -> None:
    room = _room(num_blocks=10, max_model_len=500)
    assert check_request(_request(100, 61), room) == 61  # 160 tokens are computed, the last is not
    with pytest.raises(TooLargeForPool) as caught:
        check_request(_request(100, 62), room)
    assert (caught.value.needed, caught.value.allowed) == (11, 10)


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (_request(0), "prompt"),
        (Request("r", (1, 97), SamplingParams(max_tokens=1)), "prompt"),
        (Request("r", (-1,), SamplingParams(max_tokens=1)), "prompt"),
        (Request("r", ("a",), SamplingParams(max_tokens=1)), "prompt"),  # type: ignore[arg-type]  # the point
        (_request(1, stop_token_ids=(97,)), "stop_token_ids"),
        (_request(1, temperature=-1.0), "temperature"),
        (_request(1, logit_bias=((97, 1.0),)), "logit_bias"),
        (_request(1, allowed_token_ids=(5, 97)), "allowed_token_ids"),
        (_request(1, bad_words=((1, 97),)), "bad_words"),
        (_request(1, allowed_token_ids=(EOS,), min_tokens=1), "min_tokens"),
    ],
)
def test_wrong_values_are_refused_by_name(request_: Request, param: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        check_request(request_, _room())
    assert caught.value.param == param


def test_end_tokens_of_the_model_and_the_request_stop_it_unless_ignored() -> None:
    def ends(**sampling: Any) -> frozenset[int]:
        request = _request(1, **sampling)
        return make_sequence(0, request, _room(), max_tokens=1, adapter=None, now=0.0).stop_ids

    assert ends() == {EOS}
    assert ends(stop_token_ids=(5,)) == {EOS, 5}
    assert ends(stop_token_ids=(5,), ignore_eos=True) == {5}


def test_allowed_tokens_become_a_mask() -> None:
    def mask(allowed: tuple[int, ...] | None) -> bytes | None:
        request = _request(1, allowed_token_ids=allowed)
        check_request(request, _room())
        return make_sequence(0, request, _room(), max_tokens=1, adapter=None, now=0.0).allowed

    assert mask(None) is None
    assert mask((3, 96)) == mask_of([3, 96], 97)


def test_a_seed_is_drawn_only_where_none_is_given() -> None:
    def seed(given: int | None) -> int:
        request = _request(1, seed=given)
        return make_sequence(0, request, _room(), max_tokens=1, adapter=None, now=0.0).seed

    assert seed(0) == 0
    assert seed(7) == 7
    assert seed(None) != seed(None)


def test_an_adapter_holds_from_its_invocation_on() -> None:
    def holds_from(*invocation: int) -> int:
        adapter = FakeWeights("sha256:a", invocation)
        request = Request("r", (5, 7, 8, 9), SamplingParams(max_tokens=1), "sha256:a")
        return make_sequence(0, request, _room(), max_tokens=1, adapter=adapter, now=0.0).adapter_from

    assert [holds_from(), holds_from(7, 8), holds_from(6)] == [0, 1, NEVER]
