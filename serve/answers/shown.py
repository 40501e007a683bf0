"""What a client wants to see of an answer beside its text. Plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """logprobs, prompt_logprobs: alternatives wanted beside each token; None for no log probabilities.

    usage: at the end of a stream. continuous_usage: in every chunk. token_ids: beside texts. tokens_as_ids:
    log probabilities name tokens by their ids. echo: answers begin with their prompt.
    """

    logprobs: int | None = None
    prompt_logprobs: int | None = None
    usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    tokens_as_ids: bool = False
    echo: bool = False

    @property
    def only_text(self) -> bool:
        """Whether all chunks of a choice but the first and the last differ in their text alone."""
        return self.logprobs is None and not self.token_ids and not self.continuous_usage
