import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from db.rows import RequestRecord
from engine.records import Request, RequestStats, SamplingParams, TokenEvent, TokenLogprob
from serve import generation as generation_module
from serve.answers.shared import usage
from serve.choice import Piece, Reading
from serve.errors import GenerationError, RemoteError, ReplicaLost, SpoolFull
from serve.gathered_metrics import Health
from serve.generation import Generation, Job, merged, start_all
from serve.link import ReplicaLink
from serve.metrics import Meter, Metrics, ServedAdapters
from serve.record.keeper import Keeper
from serve.record.spool import SpoolWriter
from tests.unit.serve.letters import Letters

EOS = 0
STATS = RequestStats(3, 2, 4, 0, 0.1, 0.2, 0.3)
MakeRequest = Callable[..., RequestRecord]


class Stream:
    """A replica's side of one request, played from a script."""

    def __init__(
        self, script: Sequence[list[TokenEvent] | Exception], refusal: Exception | None = None
    ) -> None:
        self.script = list(script)
        self.refusal = refusal
        self.aborted: list[int] = []
        self.closed = False

    async def accepted(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def take(self) -> list[TokenEvent]:
        if not self.script:
            await asyncio.Event().wait()
        item = self.script.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    def abort(self, index: int) -> None:
        self.aborted.append(index)
        self.script.append([TokenEvent("r", (), finish="abort", stats=STATS, index=index)])

    def close(self) -> None:
        self.closed = True


class Spool:
    """What a Keeper uses of a SpoolWriter."""

    def __init__(self) -> None:
        self.begun: list[RequestRecord] = []
        self.ended: list[RequestRecord] = []
        self.full = False

    def begin(self, record: RequestRecord) -> None:
        if self.full:
            raise SpoolFull("full")
        self.begun.append(record)

    def end(self, begun: RequestRecord, record: RequestRecord) -> None:
        self.ended.append(record)


class Stage:
    """Makes generations on scripted replicas."""

    def __init__(self, make_record: MakeRequest) -> None:
        self.make_record = make_record
        self.spool = Spool()
        self.keeper = Keeper(cast(SpoolWriter, self.spool))
        self.metrics = Metrics(list, Health, lambda: ServedAdapters((), ()))
        self.streams: list[Stream] = []

    def generation(
        self,
        script: Sequence[list[TokenEvent] | Exception],
        first: int = 0,
        *,
        n: int = 1,
        refusal: Exception | None = None,
        **options: Any,
    ) -> Generation:
        stream = Stream(script, refusal)
        self.streams.append(stream)
        link = cast(ReplicaLink, type("Link", (), {"open": lambda self, request, force: stream})())
        reading = Reading(Letters(), Letters.eos_ids, **options)
        job = Job(first, Request("r", (1, 2, 3), SamplingParams(9, n=n, prompt_logprobs=0)), reading)
        entries = [self.keeper.entry(self.make_record()) for _ in range(n)]
        return Generation(job, link, entries, Meter(self.metrics, "m", "a"))


@pytest.fixture
def stage(request_record: MakeRequest) -> Stage:
    return Stage(request_record)


def tokens(text: str, **changes: Any) -> TokenEvent:
    return TokenEvent("r", tuple(text.encode()), **changes)


async def play(generation: Generation) -> list[Piece]:
    await start_all([generation])
    return [piece async for piece in merged([generation])]


def joined(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


async def test_text_ends_at_the_end_token(stage: Stage) -> None:
    ending = TokenEvent("r", (*b"c", EOS), finish="stop", stop_token=EOS, stats=STATS)
    generation = stage.generation([[tokens("a"), tokens("b")], [ending]])
    pieces = await play(generation)
    assert [piece.text for piece in pieces] == ["ab", "c"]
    assert (pieces[-1].finish, pieces[-1].stop_reason) == ("stop", None)
    assert generation.tallies[0].completion_tokens == 4
    assert generation.tallies[0].cached_tokens == 2
    (record,) = stage.spool.ended
    assert (record.completion, record.finish_reason, record.completion_tokens) == ("abc", "stop", 4)
    assert record.queue_ms == pytest.approx(100)
    assert record.ttft_ms is not None


async def test_a_stop_string_across_tokens_never_shows(stage: Stage) -> None:
    generation = stage.generation(
        [[tokens("xE")], [tokens("N")], [tokens("Dz"), tokens("zz")]], stops=("END",)
    )
    pieces = await play(generation)
    assert joined(pieces) == "x"
    assert (pieces[-1].finish, pieces[-1].stop_reason) == ("stop", "END")
    assert generation.tallies[0].completion_tokens == 4
    assert stage.streams[0].aborted == [0]
    assert generation.tallies[0].cached_tokens == 2


async def test_a_stop_string_in_the_same_read_as_the_last_event_waits_for_nothing(stage: Stage) -> None:
    script = [[tokens("aX"), tokens("b", finish="length", stats=STATS)]]
    pieces = await asyncio.wait_for(play(stage.generation(script, stops=("X",))), 5)
    assert joined(pieces) == "a"
    assert pieces[-1].finish == "stop"
    assert stage.streams[0].aborted == []


async def test_held_text_is_flushed_at_the_length_limit(stage: Stage) -> None:
    pieces = await play(stage.generation([[tokens("xEN", finish="length", stats=STATS)]], stops=("END",)))
    assert joined(pieces) == "xEN"
    assert pieces[-1].finish == "length"


async def test_a_stop_token_of_the_request_is_told_and_not_shown(stage: Stage) -> None:
    ending = TokenEvent("r", (*b"aZ",), finish="stop", stop_token=ord("Z"), stats=STATS)
    pieces = await play(stage.generation([[ending]]))
    assert joined(pieces) == "a"
    assert pieces[-1].stop_reason == ord("Z")


async def test_characters_are_never_torn(stage: Stage) -> None:
    first, second = "é".encode()
    script = [[TokenEvent("r", (first,))], [TokenEvent("r", (second,), finish="length", stats=STATS)]]
    assert [piece.text for piece in await play(stage.generation(script))] == ["", "é"]


async def test_logprobs_end_with_the_text(stage: Stage) -> None:
    probabilities = tuple(TokenLogprob(token, -1.0) for token in (*b"aXb",))
    script = [[tokens("aXb", logprobs=probabilities)], [tokens("c")]]
    pieces = await play(stage.generation(script, stops=("X",)))
    assert [item.token_id for piece in pieces for item in piece.logprobs] == [*b"aX"]


async def test_a_refusal_is_raised_and_recorded(stage: Stage) -> None:
    generation = stage.generation([], refusal=RemoteError("QueueFull", "too many"))
    with pytest.raises(RemoteError):
        await start_all([generation])
    (record,) = stage.spool.ended
    assert (record.finish_reason, record.error) == ("error", "too many")
    assert stage.streams[0].closed


async def test_one_refusal_closes_the_other_choices(stage: Stage) -> None:
    good, bad = stage.generation([]), stage.generation([], 1, refusal=RemoteError("QueueFull", "too many"))
    with pytest.raises(RemoteError):
        await start_all([good, bad])
    assert [stream.closed for stream in stage.streams] == [True, True]
    assert sorted(record.finish_reason for record in stage.spool.ended) == ["abort", "error"]


@pytest.mark.parametrize(
    ("ending", "raised"),
    [
        ([TokenEvent("r", (), finish="error", error="boom")], GenerationError),
        ([TokenEvent("r", (), finish="abort", stats=STATS)], ReplicaLost),
        (ReplicaLost(), ReplicaLost),
    ],
)
async def test_a_failure_in_the_middle_is_raised_and_recorded(stage: Stage, ending: Any, raised: Any) -> None:
    generation = stage.generation([[tokens("a")], ending])
    await start_all([generation])
    pieces = merged([generation])
    assert (await anext(pieces)).text == "a"
    with pytest.raises(raised):
        await anext(pieces)
    (record,) = stage.spool.ended
    assert (record.finish_reason, record.completion) == ("error", "a")


async def test_leaving_early_aborts_and_records(stage: Stage) -> None:
    generation = stage.generation([[tokens("a")]])
    await start_all([generation])
    pieces = merged([generation])
    assert (await anext(pieces)).text == "a"
    await pieces.aclose()
    assert stage.streams[0].closed
    (record,) = stage.spool.ended
    assert (record.finish_reason, record.completion) == ("abort", "a")


async def test_choices_arrive_as_they_come_and_one_failure_ends_all(stage: Stage) -> None:
    done = [tokens("b", finish="length", stats=STATS)]
    good = [stage.generation([[tokens("a")], done], index) for index in range(3)]
    await start_all(good)
    pieces = [piece async for piece in merged(good)]
    assert {index: joined([p for p in pieces if p.index == index]) for index in range(3)} == dict.fromkeys(
        range(3), "ab"
    )
    assert all(stream.closed for stream in stage.streams)

    mixed = [stage.generation([[tokens("a")]], 0), stage.generation([ReplicaLost()], 1)]
    await start_all(mixed)
    with pytest.raises(ReplicaLost):
        _ = [piece async for piece in merged(mixed)]
    assert all(stream.closed for stream in stage.streams)


async def test_a_full_spool_does_not_stop_serving(stage: Stage) -> None:
    stage.spool.full = True
    pieces = await play(stage.generation([[tokens("a", finish="length", stats=STATS)]]))
    assert joined(pieces) == "a"
    assert stage.keeper.dropped == 1
    assert stage.spool.ended == []


async def test_the_record_is_complete_before_the_last_piece_is_handed_out(stage: Stage) -> None:
    generation = stage.generation([[tokens("a", finish="length", stats=STATS)]])
    await start_all([generation])
    assert len(stage.spool.begun) == 1
    async for piece in merged([generation]):
        assert piece.finish == "length"
        assert len(stage.spool.ended) == 1


async def test_metrics_carry_the_adapter(stage: Stage) -> None:
    await play(stage.generation([[tokens("a")], [tokens("bc", finish="length", stats=STATS)]]))
    registry: CollectorRegistry = stage.metrics.registry
    labels = {"model_name": "m", "adapter": "a"}

    def sample(name: str, **more: str) -> float | None:
        return registry.get_sample_value(name, labels | more)

    assert sample("vllm:request_success_total", finished_reason="length") == 1
    assert sample("vllm:time_to_first_token_seconds_count") == 1
    assert sample("vllm:inter_token_latency_seconds_count") == 2
    assert sample("vllm:request_generation_tokens_sum") == 3
    assert sample("vllm:request_queue_time_seconds_sum") == pytest.approx(0.1)


def of(index: int, text: str, **changes: Any) -> TokenEvent:
    return tokens(text, index=index, **changes)


async def test_choices_of_a_prompt_are_read_apart(stage: Stage) -> None:
    script = [
        [of(0, "a"), of(1, "x"), of(0, "b")],
        [of(1, "y", finish="length", stats=STATS), of(0, "c")],
        [of(0, "d", finish="length", stats=STATS)],
    ]
    pieces = await play(stage.generation(script, 4, n=2))
    assert [(piece.index, piece.text, piece.finish) for piece in pieces] == [
        (4, "ab", None),
        (5, "x", None),
        (5, "y", "length"),
        (4, "c", None),
        (4, "d", "length"),
    ]
    assert [record.completion for record in stage.spool.ended] == ["xy", "abcd"]
    assert [len(piece.token_ids) for piece in pieces] == [2, 1, 1, 1, 1]


async def test_a_stop_string_ends_its_own_choice_alone(stage: Stage) -> None:
    stopped = TokenEvent("r", (), finish="abort", stats=STATS, index=1)
    script = [
        [of(0, "a"), of(1, "bXc")],
        [of(1, "late"), of(0, "d")],
        [of(0, "e"), stopped],
        [of(0, "f", finish="length", stats=STATS)],
    ]
    generation = stage.generation(script, n=2, stops=("X",))
    pieces = await play(generation)
    assert [(piece.index, piece.text, piece.finish) for piece in pieces] == [
        (0, "a", None),
        (0, "d", None),
        (0, "e", None),
        (1, "b", "stop"),
        (0, "f", "length"),
    ]
    assert stage.streams[0].aborted == [1]
    assert [tally.completion_tokens for tally in generation.tallies] == [4, 2]
    assert [record.finish_reason for record in stage.spool.ended] == ["stop", "length"]


@pytest.mark.parametrize("ending", [ReplicaLost(), None])
async def test_a_whole_text_is_handed_out_also_where_its_account_never_comes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, ending: Exception | None
) -> None:
    monkeypatch.setattr(generation_module, "SETTLE_S", 0.01)
    generation = stage.generation([[tokens("aX")]], stops=("X",))
    await start_all([generation])
    stream = stage.streams[0]
    monkeypatch.setattr(stream, "abort", lambda index: stream.script.extend([ending] if ending else []))
    pieces = [piece async for piece in merged([generation])]
    assert [(piece.text, piece.finish) for piece in pieces] == [("a", "stop")]
    assert generation.tallies[0].cached_tokens == 0


async def test_what_was_whole_when_its_replica_was_lost_is_handed_out_and_the_rest_fails(
    stage: Stage,
) -> None:
    generation = stage.generation([[of(0, "aX"), of(1, "b")], ReplicaLost()], n=2, stops=("X",))
    await start_all([generation])
    pieces = merged([generation])
    came = [await anext(pieces), await anext(pieces)]
    with pytest.raises(ReplicaLost):
        await anext(pieces)
    assert [(piece.text, piece.finish) for piece in came] == [("b", None), ("a", "stop")]
    assert [record.finish_reason for record in stage.spool.ended] == ["stop", "error"]


async def test_log_probabilities_of_the_prompt_come_with_the_first_piece(stage: Stage) -> None:
    of_prompt = (TokenLogprob(2, -0.5), TokenLogprob(3, -0.25))
    script = [[of(0, "a", prompt_logprobs=of_prompt), of(1, "b")], [of(0, "c", finish="length")]]
    pieces = stage.generation([*script, [of(1, "d", finish="length")]], n=2)
    assert [piece.prompt_logprobs for piece in await play(pieces)] == [of_prompt, of_prompt, None, None]


async def test_usage_counts_a_prompt_once_and_all_that_was_generated(stage: Stage) -> None:
    hiding = RequestStats(3, 2, 1, 0, 0.1, 0.2, 0.3, hidden_tokens=7)
    script = [[of(0, "ab", finish="length", stats=hiding), of(1, "c", finish="length", stats=STATS)]]
    first = stage.generation(script, n=2)
    second = stage.generation([[tokens("d", finish="length", stats=STATS)]], 2)
    await play(first)
    await play(second)
    assert usage([first, second]) == {
        "prompt_tokens": 6,
        "completion_tokens": 2 + 7 + 1 + 1,
        "total_tokens": 6 + 11,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


async def test_a_prompt_that_is_only_scored_has_empty_choices(stage: Stage) -> None:
    of_prompt = (TokenLogprob(2, -0.5),)
    last = tokens("x", finish="length", stats=STATS, logprobs=(TokenLogprob(ord("x"), -1.0),))
    generation = stage.generation([[replace(last, prompt_logprobs=of_prompt)]], only_prompt=True)
    pieces = await play(generation)
    assert pieces == [Piece(0, finish="length", prompt_logprobs=of_prompt)]
    assert usage([generation])["completion_tokens"] == 0
    assert stage.spool.ended[0].completion == ""


@pytest.mark.parametrize(("stop", "text"), [(ord("Z"), "aZ"), (EOS, "a")])
async def test_what_ended_the_text_is_part_of_it_where_that_is_wanted(
    stage: Stage, stop: int, text: str
) -> None:
    logprobs = (TokenLogprob(ord("a"), -1.0), TokenLogprob(stop, -2.0))
    ending = TokenEvent("r", (*b"a", stop), logprobs, finish="stop", stop_token=stop, stats=STATS)
    pieces = await play(stage.generation([[ending]], include_stop=True))
    assert joined(pieces) == text
    assert len(pieces[-1].logprobs) == len(text)
    assert pieces[-1].token_ids == (ord("a"), stop)
