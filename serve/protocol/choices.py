"""How many answers are made of one prompt, and how the best of them are found."""

from typing import Literal

from pydantic import Field, model_validator

from serve.protocol.body import Misfit
from serve.protocol.presentation import StreamedBody

MAX_CHOICES = 32


class ChoicesBody(StreamedBody):
    """What a request may say of its choices."""

    n: int = Field(default=1, ge=1, le=MAX_CHOICES, description="Choices to make of each prompt.")
    best_of: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CHOICES,
        description="Make so many and, where that is more than n, hand out the n of the highest log "
        "probability per token, best first; all count in the usage. Not with stream, unless equal to n. "
        "With use_beam_search: the beams.",
    )
    use_beam_search: bool = Field(
        default=False,
        description="Search with best_of (or n) beams instead of sampling; needs temperature 0 or none, "
        "and nothing else that changes the probabilities. Not with stream.",
    )
    length_penalty: float = Field(
        default=1.0,
        ge=-10.0,
        le=10.0,
        description="A beam of t tokens scores its summed log probability / t ** length_penalty.",
    )
    early_stopping: bool | Literal["never"] = Field(
        default=False,
        description="When a beam search ends that has found as many answers as it has beams: at once (true), "
        "when no beam is better at its length (false), or could become so (never).",
    )

    @model_validator(mode="after")
    def _choices_fit(self) -> "ChoicesBody":
        if self.best_of is not None and self.best_of < self.n:
            raise Misfit("best_of", f"best_of is {self.best_of}; at least n ({self.n}) is needed")
        if self.stream and self.use_beam_search:
            raise Misfit("stream", "the result of use_beam_search cannot be streamed")
        if self.stream and (self.best_of or self.n) > self.n:
            raise Misfit("stream", f"the best {self.n} of best_of {self.best_of} cannot be streamed")
        if not self.use_beam_search:
            for name in ("length_penalty", "early_stopping"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise Misfit(name, f"{name} needs use_beam_search: true")
        return self

    @property
    def beam_width(self) -> int | None:
        """Beams to search with; None to sample."""
        return (self.best_of or self.n) if self.use_beam_search else None
