"""Body of POST /v1/embeddings, and what it shares with that of POST /v1/score."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from serve.protocol.body import Body, parse
from serve.protocol.sampling import UserKey

MAX_INPUTS = 2048
INT32 = 1 << 31

Text = str | list[int]


def _texts(value: object) -> list[Text]:
    """Every form of `input` becomes a list of texts and lists of token ids."""
    if isinstance(value, str) or _is_ids(value):
        value = [value]
    if not isinstance(value, list) or not value:
        raise ValueError("expected a string, token ids, or a list of either that is not empty")
    if len(value) > MAX_INPUTS:
        raise ValueError(f"{len(value)} inputs; at most {MAX_INPUTS} are allowed")
    for place, item in enumerate(value):
        if item in ("", []):
            raise ValueError(f"item {place} is empty; at least one token is needed")
        if not isinstance(item, str) and not _is_ids(item):
            raise ValueError(f"item {place} is neither a string nor token ids (integers >= 0)")
    return value


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int and item >= 0 for item in value)


_Ids = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
_Text = Annotated[str, Field(min_length=1)] | _Ids
_Sent = _Text | Annotated[list[_Text], Field(min_length=1, max_length=MAX_INPUTS)]

Texts = Annotated[list[Any], BeforeValidator(_texts, json_schema_input_type=_Sent)]
"""One text or many, as strings or as token ids."""


class VectorBody(Body):
    """What every request to a model that makes vectors may say."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "cache_salt": (),
        "embed_dtype": ("float32",),
        "endianness": ("native",),
        "messages": (),
        "mm_processor_kwargs": ({},),
        "padding": ("do_not_pad",),
        "priority": (0,),
        "request_id": (),
        "use_activation": (),
    }

    model: str = Field(description="A base model of task embed, an adapter of one, or an endpoint.")
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, lt=INT32)] | None = Field(
        default=None,
        description="Cut texts to so many tokens, marks included; -1 for the model's limit. Otherwise too "
        "long a text is refused.",
    )
    truncation_side: Literal["left", "right"] = Field(
        default="right", description="Which end of a text is cut away."
    )
    add_special_tokens: bool = Field(
        default=True, description="Put the tokenizer's marks, such as [CLS], around texts that are strings."
    )
    user: UserKey | None = Field(default=None, description="Whose request it is.")
    safety_identifier: UserKey | None = Field(default=None, description="The newer name of user.")

    @property
    def user_key(self) -> str | None:
        """Whom the body names, the newer field before the older."""
        return self.safety_identifier or self.user


class EmbeddingBody(VectorBody):
    """Texts to be made vectors."""

    input: Texts = Field(description="A text or up to 2,048 of them, as strings or as token ids.")
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="Numbers, or the float32 values in little-endian order as base64."
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        lt=INT32,
        description="Only the first so many numbers of each vector, made length one again; for models that "
        "were trained for it.",
    )


def parse_embeddings(body: Mapping[str, Any]) -> EmbeddingBody:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(EmbeddingBody, body)
