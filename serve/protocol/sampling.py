"""The parameters that chat and text completions share, and their translation for the engine."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator

from engine.grammar import Grammar
from engine.records import SamplingParams
from serve.protocol.body import Body
from serve.protocol.constraints import ConstraintsBody

MAX_CHOICES = 32
MAX_STOPS = 16
INT64 = 1 << 63

TokenSequences = tuple[tuple[int, ...], ...]

StopText = Annotated[str, StringConstraints(min_length=1, max_length=512)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
_Stops = StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)]
UserKey = Annotated[str, StringConstraints(min_length=1, max_length=512)]

# Parameters of the OpenAI and vLLM APIs that are not served, each with the values that mean "off".
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "length_penalty": (1, 1.0),
    "prompt_logprobs": (),
    "repetition_detection": (),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "structured_outputs": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "vllm_xargs": ({},),
}


class StreamOptions(Body):
    """include_usage asks for one last chunk with the usage of the whole request."""

    include_usage: bool = False
    include_obfuscation: bool = False
    continuous_usage_stats: bool = False

    @field_validator("include_obfuscation", "continuous_usage_stats")
    @classmethod
    def _off(cls, value: bool) -> bool:
        if value:
            raise ValueError("not supported here; allowed: false")
        return value


class GenerationBody(ConstraintsBody):
    """What a request for text may say beside its prompt."""

    model: str
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: list[StopText] = Field(default=[], max_length=MAX_STOPS)
    temperature: float = Field(default=1.0, ge=0.0, le=100.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=-1, lt=INT64)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=100.0)
    seed: int | None = Field(default=None, ge=-INT64, lt=INT64)
    stop_token_ids: list[Annotated[int, Field(ge=0, lt=INT64)]] = Field(default=[], max_length=64)
    ignore_eos: bool = False
    min_tokens: int = Field(default=0, ge=0, lt=INT64)
    include_stop_str_in_output: bool = False
    cache_salt: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]+$")] = (
        ""
    )
    priority: int = Field(default=0, ge=-(1 << 31), lt=1 << 31)
    user: UserKey | None = None
    safety_identifier: UserKey | None = None

    @field_validator("stop", mode="before", json_schema_input_type=_Stops)
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @property
    def user_key(self) -> str | None:
        """Whom the body names, the newer field before the older."""
        return self.safety_identifier or self.user

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is left to know of a generation once its room is known. grammar: of calls that are demanded."""

    max_tokens: int
    logprobs: int | None
    grammar: Grammar | None = None


def to_sampling(body: GenerationBody, wanted: Wanted, bad_words: TokenSequences) -> SamplingParams:
    """How the engine makes the choices of one prompt. bad_words: those of the body, as tokens."""
    return SamplingParams(
        max_tokens=wanted.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=max(body.top_k, 0),
        min_p=body.min_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        seed=body.seed,
        n=body.n,
        stop_token_ids=tuple(body.stop_token_ids),
        ignore_eos=body.ignore_eos,
        min_tokens=min(body.min_tokens, wanted.max_tokens),
        logprobs=wanted.logprobs,
        logit_bias=tuple((int(token_id), bias) for token_id, bias in body.logit_bias.items()),
        allowed_token_ids=None if body.allowed_token_ids is None else tuple(body.allowed_token_ids),
        bad_words=bad_words,
        grammar=wanted.grammar,
    )
