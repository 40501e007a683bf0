"""What a request may say of single tokens."""

from typing import Annotated

from pydantic import Field, StringConstraints

from engine.sampling import MAX_BAD_WORDS, MAX_BIASES, MOST_BIAS
from serve.protocol.body import Body

_FORMS = 2
"""Of a bad word: at the beginning of a text and behind a space."""

_Id = Annotated[str, StringConstraints(pattern=r"^(0|[1-9][0-9]{0,9})$")]
_Bias = Annotated[float, Field(ge=-MOST_BIAS, le=MOST_BIAS)]
_Word = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class ConstraintsBody(Body):
    """Part of the body of a request for text."""

    logit_bias: dict[_Id, _Bias] = Field(
        default={}, max_length=MAX_BIASES, description="Added to the logits of tokens, by token id."
    )
    allowed_token_ids: list[Annotated[int, Field(ge=0, lt=1 << 31)]] | None = Field(
        default=None, min_length=1, description="No other tokens are generated."
    )
    bad_words: list[_Word] = Field(
        default=[], max_length=MAX_BAD_WORDS // _FORMS, description="Texts that are not generated."
    )
