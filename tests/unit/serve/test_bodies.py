import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.errors import InvalidParameter
from serve.errors import BadRequest, InvalidBody, InvalidField, UnknownParameter, UnsupportedParameter
from serve.protocol.admin import parse_feedback, parse_load, parse_unload
from serve.protocol.body import read_json
from serve.protocol.chat import parse_chat
from serve.protocol.completions import parse_completion
from serve.protocol.sampling import Wanted, to_sampling

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": "m", "prompt": "hi"}
REQUEST_ID = "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"


def test_a_plain_chat_passes() -> None:
    body = parse_chat(CHAT)
    assert body.messages[0].plain() == {"role": "user", "content": "hi"}
    assert (body.n, body.stream, body.limit, body.wanted_logprobs) == (1, False, None, None)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": float("inf")}, "min_p"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"stop": ""}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stream": "yes"}, "stream"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"cache_salt": "a/b"}, "cache_salt"),
        ({"user": ""}, "user"),
        ({"logit_bias": {"a": 1}}, "logit_bias.a"),
        ({"logit_bias": {"05": 1}}, "logit_bias.05"),
        ({"logit_bias": {"-1": 1}}, "logit_bias.-1"),
        ({"logit_bias": {"1": 100.5}}, "logit_bias.1"),
        ({"logit_bias": {"1": True}}, "logit_bias.1"),
        ({"logit_bias": {"1": float("nan")}}, "logit_bias.1"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids[0]"),
        ({"allowed_token_ids": [1.0]}, "allowed_token_ids[0]"),
        ({"bad_words": [""]}, "bad_words[0]"),
        ({"bad_words": "x"}, "bad_words"),
        ({"bad_words": ["x"] * 129}, "bad_words"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "alien", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, "messages[0].tool_calls"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": {"other": True}}, "stream_options.other"),
    ],
)
def test_odd_values_are_refused_by_name(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_chat(CHAT | change)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "name",
    [
        "audio",
        "store",
        "guided_json",
        "service_tier",
        "prediction",
    ],
)
def test_a_parameter_that_is_not_served_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        parse_chat(CHAT | {name: [1]})
    assert caught.value.param == name


@pytest.mark.parametrize(
    "change",
    [
        {"response_format": {"type": "text"}},
        {"logit_bias": {}, "bad_words": []},
        {"tool_choice": "none"},
        {"service_tier": "auto", "store": False},
        {"modalities": ["text"]},
        {"tools": None, "functions": None, "anything": None},
    ],
)
def test_values_that_change_nothing_pass(change: dict[str, Any]) -> None:
    assert parse_chat(CHAT | change).model == "m"


def test_null_within_an_object_counts_as_not_sent_too() -> None:
    function = {"name": "f", "description": None, "parameters": None, "strict": None}
    call = {"id": "c", "type": None, "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = parse_chat(
        CHAT
        | {"messages": [asked, {"role": "tool", "tool_call_id": "c", "content": "x"}]}
        | {"tools": [{"type": "function", "function": function}]}
        | {"stream": True, "stream_options": {"include_usage": None, "continuous_usage_stats": True}}
    )
    assert body.tools[0].function.description == ""
    assert body.stream_options is not None
    assert not body.stream_options.include_usage


def test_false_is_not_taken_for_zero() -> None:
    with pytest.raises(InvalidField):
        parse_chat(CHAT | {"best_of": True})


def test_an_unknown_parameter_is_refused_by_name() -> None:
    with pytest.raises(UnknownParameter) as caught:
        parse_chat(CHAT | {"temprature": 0.1})
    assert caught.value.param == "temprature"


@pytest.mark.parametrize(
    ("parser", "body", "param", "message"),
    [
        (parse_chat, CHAT | {"stream_options": {}}, "stream_options", "stream_options needs stream: true"),
        (
            parse_completion,
            TEXT | {"stream_options": {}},
            "stream_options",
            "stream_options needs stream: true",
        ),
        (parse_chat, CHAT | {"top_logprobs": 2}, "top_logprobs", "top_logprobs needs logprobs: true"),
        (parse_completion, TEXT | {"prompt": ["x"] * 64, "n": 32}, "n", "is 2048; at most 256 is allowed"),
        (parse_feedback, {"request_id": REQUEST_ID, "kind": "thumbs", "value": 3}, "value", "1 or -1, got 3"),
        (parse_feedback, {"request_id": REQUEST_ID, "kind": "edit"}, "text", "edit needs text"),
    ],
)
def test_parameters_that_do_not_go_together_are_named_and_nothing_else_is_repeated(
    parser: Callable[[dict[str, Any]], Any], body: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        parser(body)
    assert caught.value.param == param
    assert str(caught.value).endswith(message)
    assert len(str(caught.value)) < 80


def test_parts_of_text_are_joined_and_developer_is_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = parse_chat(CHAT | {"messages": [{"role": "developer", "content": parts}]})
    assert body.messages[0].plain() == {"role": "system", "content": "ab"}


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_every_form_of_prompt_becomes_a_list(prompt: Any, read: Any) -> None:
    assert parse_completion(TEXT | {"prompt": prompt}).prompt == read


@pytest.mark.parametrize("prompt", [None, 5, [], [[]], [-1], [1.5], [True], ["a", 1], ["x"] * 65])
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_completion(TEXT | {"prompt": prompt})
    assert caught.value.param == "prompt"


def test_a_text_before_a_suffix_is_not_served() -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        parse_completion(TEXT | {"suffix": "x"})
    assert caught.value.param == "suffix"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1, "echo": True}, "max_tokens"),
        ({"max_tokens": 0, "echo": True, "best_of": 2}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": 1}, "echo"),
        ({"add_special_tokens": "yes"}, "add_special_tokens"),
        ({"best_of": 33}, "best_of"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 3, "n": 2, "stream": True}, "stream"),
        ({"use_beam_search": True, "stream": True}, "stream"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"use_beam_search": True, "length_penalty": 11}, "length_penalty"),
        ({"use_beam_search": True, "early_stopping": "always"}, "early_stopping"),
        ({"length_penalty": 0.5}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"early_stopping": "never"}, "early_stopping"),
        ({"prompt": ["x"] * 64, "best_of": 5}, "best_of"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
    ],
)
def test_odd_values_of_texts_are_refused_by_name(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_completion(TEXT | change)
    assert caught.value.param.split("[")[0].split(".bool")[0] == param


def test_echo_may_only_score_and_scores_with_its_log_probabilities() -> None:
    body = parse_completion(TEXT | {"echo": True, "max_tokens": 0, "logprobs": 3, "prompt_logprobs": 1})
    assert (body.limit, body.scored) == (0, 3)
    assert parse_completion(TEXT | {"logprobs": 3}).scored is None
    assert parse_chat(CHAT | {"prompt_logprobs": 0}).scored == 0


def test_as_many_choices_as_are_made_may_be_streamed() -> None:
    assert parse_completion(TEXT | {"best_of": 2, "n": 2, "stream": True}).best_of == 2


def test_beams_sample_nothing_and_are_as_many_as_choices_unless_told() -> None:
    sent = {"use_beam_search": True, "n": 2, "length_penalty": 0.5, "early_stopping": "never"}
    params = to_sampling(parse_completion(TEXT | sent), Wanted(5, None), ())
    params.validate()
    assert (params.n, params.beam_width, params.best_of, params.temperature) == (2, 2, None, 0.0)
    assert (params.length_penalty, params.early_stopping) == (0.5, "never")
    more = to_sampling(
        parse_completion(TEXT | sent | {"best_of": 4, "temperature": 1.0}), Wanted(5, None), ()
    )
    assert (more.n, more.beam_width, more.best_of) == (2, 4, None)
    with pytest.raises(InvalidParameter, match="temperature"):
        more.validate()


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[1]", b'"x"', b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": "\\ud800"}', b"\xff"]
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidBody):
        read_json(raw)


def test_deep_json_is_refused_and_harms_nobody() -> None:
    with pytest.raises(BadRequest):
        parse_chat(read_json(b'{"a":' * 100_000 + b"1" + b"}" * 100_000))


def test_sampling_reaches_the_engine_unchanged() -> None:
    sent = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "repetition_penalty": 1.1,
        "stop_token_ids": [3],
        "ignore_eos": True,
        "min_tokens": 9,
        "seed": 2**63 - 1,
        "n": 3,
        "logit_bias": {"7": -1.5, "9": 100},
        "allowed_token_ids": [9, 3],
        "bad_words": ["not looked at here"],
    }
    params = to_sampling(parse_chat(CHAT | sent), Wanted(4, 2), ((5, 6),))
    params.validate()
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 7, 0.1)
    assert (params.max_tokens, params.min_tokens, params.logprobs) == (4, 4, 2)
    assert params.stop_token_ids == (3,)
    assert (params.seed, params.n) == (2**63 - 1, 3)
    assert params.ignore_eos
    assert params.logit_bias == ((7, -1.5), (9, 100.0))
    assert (params.allowed_token_ids, params.bad_words) == ((9, 3), ((5, 6),))


def test_a_load_takes_vllms_body() -> None:
    body = parse_load({"lora_name": "a:b/c d", "lora_path": "x", "is_3d_lora_weight": False})
    assert (body.lora_name, body.load_inplace) == ("a:b/c d", False)


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 201, 5])
def test_names_of_adapters_have_rules(name: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_load({"lora_name": name, "lora_path": "x"})
    assert caught.value.param == "lora_name"
    if name not in (" a",):
        with pytest.raises(InvalidField):
            parse_unload({"lora_name": name})


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "thumbs"},
        {"kind": "thumbs", "value": 0},
        {"kind": "thumbs", "value": True},
        {"kind": "thumbs", "value": 1, "text": "x"},
        {"kind": "edit"},
        {"kind": "comment", "text": "x", "value": 1},
        {"kind": "regenerate", "text": "x"},
        {"kind": "applause"},
        {"kind": "thumbs", "value": 1, "request_id": "nope"},
    ],
)
def test_feedback_must_fit_its_kind(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        parse_feedback({"request_id": REQUEST_ID} | change)


def test_feedback_takes_the_id_of_a_completion() -> None:
    body = parse_feedback({"request_id": f"chatcmpl-{REQUEST_ID}", "kind": "edit", "text": "better"})
    assert body.request_id == REQUEST_ID


def test_a_body_survives_the_journey_through_json() -> None:
    assert parse_chat(read_json(json.dumps(CHAT).encode())) == parse_chat(CHAT)
