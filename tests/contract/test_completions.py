"""What only text completions have: echoed and scored prompts, the best of several answers, beams."""

from typing import Any

import openai
import pytest

from engine.fake_runner import expected, prompt_score, state_after
from serve.answers import shared
from tests.contract.model_folder import VOCABULARY

PROMPT = "tell me"


def fixed(**options: Any) -> dict[str, Any]:
    return {"model": "base", "prompt": PROMPT, "max_tokens": 8, "seed": 1, **options}


def scores(served: Any, prompt: str, count: int) -> list[Any]:
    """What the engine says of each token of a prompt but the first."""
    ids = served.tokenizer.encode(prompt)
    return [prompt_score(state_after(ids[:at]), ids[at], count, VOCABULARY) for at in range(1, len(ids))]


def ask(served: Any, **options: Any) -> Any:
    with served.http as http:
        answer = http.post("/v1/completions", json=fixed(**options))
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(served: Any, **options: Any) -> dict[int, dict[str, Any]]:
    """Choices of a stream, joined."""
    found: dict[int, dict[str, Any]] = {}
    with served.client as client:
        for chunk in client.completions.create(**fixed(**options), stream=True):
            for choice in chunk.choices:
                made = found.setdefault(choice.index, {"text": "", "logprobs": []})
                made["text"] += choice.text
                made["logprobs"].append(choice.logprobs and choice.logprobs.model_dump())
                made["finish"] = choice.finish_reason
    return found


@pytest.mark.parametrize("n", [1, 3])
def test_an_echo_begins_each_choice_of_each_prompt(served: Any, n: int) -> None:
    ids = served.tokenizer.encode("two")
    for prompts, texts in ((["one", "two"], ["one", "two"]), ([ids, ids], ["two", "two"])):
        answer = ask(served, prompt=prompts, echo=True, n=n)
        wanted = [text + served.expected(text, 8, seed=1 + k) for text in texts for k in range(n)]
        assert [choice["text"] for choice in answer["choices"]] == wanted
        joined = streamed(served, prompt=prompts, echo=True, n=n)
        assert [joined[index]["text"] for index in sorted(joined)] == wanted


def test_an_echo_with_log_probabilities_has_those_of_the_prompt_first_also_in_a_stream(served: Any) -> None:
    choice = ask(served, echo=True, logprobs=1)["choices"][0]
    shown, of_prompt = choice["logprobs"], scores(served, PROMPT, 1)
    assert "".join(shown["tokens"]) == choice["text"]
    assert shown["text_offset"] == list(range(len(choice["text"])))
    assert shown["token_logprobs"][: len(PROMPT)] == [None, *(item.logprob for item in of_prompt)]
    assert shown["top_logprobs"][0] is None
    for item, top in zip(of_prompt, shown["top_logprobs"][1:], strict=False):
        assert served.tokenizer.decode([item.top[0][0]]) in top
    parts = streamed(served, echo=True, logprobs=1)[0]
    assert parts["text"] == choice["text"]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [item for part in parts["logprobs"] for item in part[name]] == shown[name]


@pytest.mark.parametrize("stream", [False, True])
def test_without_new_tokens_a_prompt_is_only_scored(served: Any, stream: bool) -> None:
    options: dict[str, Any] = {"echo": True, "logprobs": 0, "max_tokens": 0}
    if stream:
        joined = streamed(served, **options)[0]
        text, finish, tokens = joined["text"], joined["finish"], joined["logprobs"][0]["tokens"]
    else:
        answer = ask(served, **options)
        (choice,) = answer["choices"]
        text, finish, tokens = choice["text"], choice["finish_reason"], choice["logprobs"]["tokens"]
        assert answer["usage"]["completion_tokens"] == 0
        assert answer["usage"]["total_tokens"] == len(PROMPT)
    assert (text, finish, "".join(tokens)) == (PROMPT, "length", PROMPT)
    served.until(served.idle)


def test_a_prompt_is_scored_in_vllms_shape_for_texts_and_chats(served: Any) -> None:
    shown = ask(served, prompt_logprobs=2, n=2)["choices"]
    of_prompt = scores(served, PROMPT, 2)
    assert shown[0]["prompt_logprobs"] == shown[1]["prompt_logprobs"]
    assert shown[0]["prompt_logprobs"][0] is None
    for item, entry in zip(of_prompt, shown[0]["prompt_logprobs"][1:], strict=True):
        own = entry[str(item.token_id)]
        assert (own["logprob"], own["rank"]) == (item.logprob, item.rank)
        assert own["decoded_token"] == served.tokenizer.decode([item.token_id])
        assert {str(token) for token, _ in item.top} <= entry.keys()
    with served.client as client:
        chat = client.chat.completions.create(
            model="base",
            messages=[{"role": "user", "content": "x"}],
            max_tokens=2,
            extra_body={"prompt_logprobs": 0, "return_token_ids": True},
        )
    assert chat.usage is not None
    assert len(chat.prompt_logprobs) == len(chat.prompt_token_ids) == chat.usage.prompt_tokens
    assert [list(entry) for entry in chat.prompt_logprobs[1:]] == [
        [str(token)] for token in chat.prompt_token_ids[1:]
    ]


def test_the_best_of_several_answers_are_handed_out_and_all_are_paid(served: Any) -> None:
    ids = served.tokenizer.encode(PROMPT)
    made = [expected(ids, 8, seed=1 + k, vocab_size=VOCABULARY) for k in range(4)]
    best = sorted(made, key=lambda tokens: sum(tokens) / len(tokens))
    answer = ask(served, n=2, best_of=4)
    assert [choice["text"] for choice in answer["choices"]] == [
        served.tokenizer.decode(tokens) for tokens in best[:2]
    ]
    assert answer["usage"]["completion_tokens"] == sum(map(len, made))


@pytest.mark.parametrize(
    "how", [{"n": 3}, {"n": 2, "best_of": 3}, {"n": 2, "use_beam_search": True}], ids=str
)
def test_prompts_of_several_choices_are_scored_once(served: Any, how: dict[str, Any]) -> None:
    answer = ask(served, echo=True, logprobs=1, prompt_logprobs=0, **how)
    of_prompt = [item.logprob for item in scores(served, PROMPT, 1)]
    for choice in answer["choices"]:
        shown = choice["logprobs"]
        assert shown["token_logprobs"][1 : len(PROMPT)] == of_prompt
        assert "".join(shown["tokens"]) == choice["text"]
        own = [next(iter(entry.values())) for entry in choice["prompt_logprobs"][1:]]
        assert [entry["logprob"] for entry in own] == of_prompt
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_stop_string_cuts_the_best_answer_after_it_was_found(served: Any) -> None:
    whole = ask(served, best_of=4, n=1)["choices"][0]["text"]
    stop = whole[2:4]
    choice = ask(served, best_of=4, n=1, stop=stop)["choices"][0]
    assert choice["text"] == whole[: whole.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    served.until(served.idle)


def test_beams_are_as_many_as_choices_and_come_best_first(served: Any) -> None:
    wide = ask(served, use_beam_search=True, n=3, logprobs=0)["choices"]
    sums = [sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["tokens"]) for choice in wide]
    assert sums == sorted(sums, reverse=True)
    assert len({choice["text"] for choice in wide}) == 3
    narrow = ask(served, use_beam_search=True, n=1, best_of=3)["choices"]
    assert [choice["text"] for choice in narrow] == [wide[0]["text"]]
    for penalty in (-2.0, 2.0):
        ask(served, use_beam_search=True, n=2, length_penalty=penalty, early_stopping=True)
    served.until(served.idle)


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"use_beam_search": True, "temperature": 0.5}, "temperature"),
        ({"use_beam_search": True, "temperature": 0, "top_p": 0.5}, "top_p"),
        ({"use_beam_search": True, "stream": True}, "stream"),
        ({"best_of": 3, "n": 2, "stream": True}, "stream"),
        ({"suffix": "end"}, "suffix"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(served: Any, extra: dict[str, Any], param: str) -> None:
    with served.client as client, pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**fixed(), extra_body=extra)
    assert caught.value.param == param


def test_token_ids_of_prompt_and_answer_can_be_had(served: Any) -> None:
    ids = served.tokenizer.encode(PROMPT)
    made = expected(ids, 8, seed=1, vocab_size=VOCABULARY)
    (choice,) = ask(served, return_token_ids=True)["choices"]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == (ids, made)
    with served.client as client:
        chunks = client.completions.create(**fixed(), stream=True, extra_body={"return_token_ids": True})
        parts = [chunk.choices[0] for chunk in chunks]
    assert [token for part in parts for token in part.token_ids] == made
    assert parts[0].prompt_token_ids == ids
    assert not any("prompt_token_ids" in (part.model_extra or {}) for part in parts[1:])


def test_special_tokens_show_where_that_is_wanted(served: Any) -> None:
    ids = served.tokenizer.encode(PROMPT)
    seed = next(seed for seed in range(3000) if expected(ids, 20, seed=seed, vocab_size=VOCABULARY)[-1] == 0)
    hidden = ask(served, seed=seed, max_tokens=20)["choices"][0]
    shown = ask(served, seed=seed, max_tokens=20, skip_special_tokens=False, include_stop_str_in_output=True)[
        "choices"
    ][0]
    assert hidden["finish_reason"] == shown["finish_reason"] == "stop"
    assert shown["text"] == hidden["text"] + "<|im_end|>"
    only_kept = ask(served, seed=seed, max_tokens=20, skip_special_tokens=False)["choices"][0]
    assert only_kept["text"] == hidden["text"]
    tokens = [*served.tokenizer.encode("<|im_start|>"), *ids]
    echo = {"echo": True, "max_tokens": 0, "prompt": tokens}
    assert ask(served, **echo)["choices"][0]["text"] == PROMPT
    assert ask(served, **echo, skip_special_tokens=False)["choices"][0]["text"] == "<|im_start|>" + PROMPT


def test_a_prompt_keeps_its_end_where_it_is_cut(served: Any) -> None:
    cut = ask(served, prompt="0123456789", truncate_prompt_tokens=4, echo=True)
    assert cut["choices"][0]["text"] == "6789" + served.expected("6789", 8, seed=1)
    assert cut["usage"]["prompt_tokens"] == 4
    whole = ask(served, truncate_prompt_tokens=400)
    assert whole["usage"]["prompt_tokens"] == len(PROMPT)
    fitted = ask(served, prompt="y" * 600, truncate_prompt_tokens=-1, max_tokens=12, ignore_eos=True)
    assert fitted["usage"] == {**fitted["usage"], "prompt_tokens": 500, "completion_tokens": 12}


def test_the_usage_so_far_can_be_had_in_every_chunk(served: Any) -> None:
    with served.client as client:
        options = {"include_usage": True, "continuous_usage_stats": True}
        chunks = list(client.completions.create(**fixed(n=2), stream=True, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[0] > 0
    assert chunks[-1].choices == []
    assert counts[-1] == counts[-2] == ask(served, n=2)["usage"]["completion_tokens"]
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {len(PROMPT)}


def test_long_prompts_are_scored_beside_the_other_streams(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MANY_LOGPROBS", 100)
    prompts = ["z" * 400 + str(number) for number in range(4)]
    answer = ask(served, prompt=prompts, echo=True, logprobs=2, max_tokens=1)
    for prompt, choice in zip(prompts, answer["choices"], strict=True):
        shown = choice["logprobs"]
        assert "".join(shown["tokens"]) == choice["text"]
        assert shown["token_logprobs"][1:-1] == [item.logprob for item in scores(served, prompt, 2)]
    parts = streamed(served, prompt=prompts[0], echo=True, logprobs=2, max_tokens=1)[0]
    assert parts["logprobs"][0]["tokens"] == answer["choices"][0]["logprobs"]["tokens"]
