"""The parameters that chat and text completions share, and their translation for the engine."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from engine.grammar import Grammar
from engine.records import SamplingParams
from serve.protocol.choices import ChoicesBody
from serve.protocol.constraints import ConstraintsBody
from serve.protocol.presentation import PresentationBody
from serve.protocol.structured import StructuredBody

INT64 = 1 << 63

TokenSequences = tuple[tuple[int, ...], ...]

Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
UserKey = Annotated[str, StringConstraints(min_length=1, max_length=512)]

# Parameters of the OpenAI and vLLM APIs that are not served, each with the values that mean "off".
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "repetition_detection": (),
    "vllm_xargs": ({},),
}


class GenerationBody(ChoicesBody, PresentationBody, ConstraintsBody, StructuredBody):
    """What a request for text may say beside its prompt."""

    model: str = Field(description="The id of an adapter, an endpoint or a base model.")
    temperature: float = Field(
        default=1.0, ge=0.0, le=100.0, description="Divides the logits; 0 takes the likeliest token."
    )
    top_p: float = Field(
        default=1.0, gt=0.0, le=1.0, description="Draw from the likeliest tokens that sum to it; 1 is off."
    )
    top_k: int = Field(
        default=0, ge=-1, lt=INT64, description="Draw from so many likeliest tokens; 0 and -1 are off."
    )
    min_p: float = Field(
        default=0.0, ge=0.0, le=1.0, description="Draw from tokens at least so likely, as a part of the best."
    )
    presence_penalty: float = Field(
        default=0.0, ge=-2.0, le=2.0, description="Taken off the logit of each token generated before."
    )
    frequency_penalty: float = Field(
        default=0.0, ge=-2.0, le=2.0, description="Taken off the logit for each time it was generated."
    )
    repetition_penalty: float = Field(
        default=1.0, gt=0.0, le=100.0, description="Shrinks the logit of each token of prompt and answer."
    )
    seed: int | None = Field(
        default=None, ge=-INT64, lt=INT64, description="Same seed, same answer; choice i draws with seed + i."
    )
    stop_token_ids: list[Annotated[int, Field(ge=0, lt=INT64)]] = Field(
        default=[], max_length=64, description="Tokens that end the answer beside the model's own."
    )
    ignore_eos: bool = Field(default=False, description="Go on when the model's own end tokens come.")
    min_tokens: int = Field(
        default=0, ge=0, lt=INT64, description="No token ends the answer before so many were made."
    )
    cache_salt: Annotated[
        str,
        StringConstraints(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]+$"),
        Field(description="Prompts share cached prefixes only under an equal salt."),
    ] = ""
    priority: int = Field(
        default=0, ge=-(1 << 31), lt=1 << 31, description="A lower value is served earlier."
    )
    user: UserKey | None = Field(default=None, description="Older name of safety_identifier.")
    safety_identifier: UserKey | None = Field(
        default=None, description="Whom the request is for; keeps a person in one arm of a split."
    )

    @property
    def scored(self) -> int | None:
        """Alternatives wanted beside each token of the prompt; None for no log probabilities of it."""
        return self.prompt_logprobs

    @property
    def user_key(self) -> str | None:
        """Whom the body names, the newer field before the older."""
        return self.safety_identifier or self.user


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is left to know of a generation once its room is known. grammar: of calls that are demanded."""

    max_tokens: int
    logprobs: int | None
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None


def to_sampling(body: GenerationBody, wanted: Wanted, bad_words: TokenSequences) -> SamplingParams:
    """How the engine makes the choices of one prompt. bad_words: those of the body, as tokens."""
    beams = body.beam_width
    sampled = beams is None or "temperature" in body.model_fields_set
    return SamplingParams(
        max_tokens=wanted.max_tokens,
        temperature=body.temperature if sampled else 0.0,
        top_p=body.top_p,
        top_k=max(body.top_k, 0),
        min_p=body.min_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        seed=body.seed,
        n=body.n,
        best_of=body.best_of if beams is None else None,
        beam_width=beams,
        length_penalty=body.length_penalty,
        early_stopping=body.early_stopping,
        stop_token_ids=tuple(body.stop_token_ids),
        ignore_eos=body.ignore_eos,
        min_tokens=min(body.min_tokens, wanted.max_tokens),
        logprobs=wanted.logprobs,
        prompt_logprobs=wanted.prompt_logprobs,
        logit_bias=tuple((int(token_id), bias) for token_id, bias in body.logit_bias.items()),
        allowed_token_ids=None if body.allowed_token_ids is None else tuple(body.allowed_token_ids),
        bad_words=bad_words,
        grammar=wanted.grammar or body.grammar,
    )
