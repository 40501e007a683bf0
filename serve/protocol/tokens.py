"""Bodies of POST /tokenize and POST /detokenize, as vLLM has them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator, model_validator

from serve.protocol.body import Body, Misfit, parse
from serve.protocol.chat import check_template_arguments
from serve.protocol.messages import Message, check_end
from serve.protocol.tools import MAX_TOOLS, Tool, check_tools
from serve.talk import Talk

MAX_TOKENS = 1 << 20
TokenId = Annotated[int, Field(ge=0, lt=1 << 63)]

# Parts of vLLM's body that are not served, each with the values that mean "off".
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "chat_template": (),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
}


class TokenizeBody(Body):
    """A text, or the messages of a conversation, to be turned into the ids that the model would read."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = _NEUTRAL

    model: str = Field(description="Whose tokenizer and chat template: an adapter, endpoint or base model.")
    prompt: str | None = Field(default=None, description="A plain text; this or messages.")
    messages: list[Message] | None = Field(
        default=None, min_length=1, max_length=4096, description="A conversation; this or prompt."
    )
    add_special_tokens: bool | None = Field(
        default=None,
        description="Whether marks such as BOS are set: by default around a prompt, where messages have "
        "those of the template alone.",
    )
    return_token_strs: bool = Field(default=False, description="Answer each token's own spelling as well.")
    add_generation_prompt: bool | None = Field(
        default=None, description="End messages with the beginning of an answer; by default true."
    )
    chat_template_kwargs: dict[str, Any] = Field(
        default={}, max_length=64, description="Further variables for the chat template."
    )

    continue_final_message: bool = Field(
        default=False, description="Leave the last message open, as for an answer that goes on with it."
    )
    tools: list[Tool] = Field(
        default=[], min_length=1, max_length=MAX_TOOLS, description="Functions that the prompt tells of."
    )

    _arguments = field_validator("chat_template_kwargs")(check_template_arguments)

    @model_validator(mode="after")
    def _one_of_both(self) -> "TokenizeBody":
        if (self.prompt is None) == (self.messages is None):
            met = "neither is" if self.prompt is None else "both are"
            raise Misfit("prompt", f"one of prompt and messages is needed; {met} given")
        if self.messages is None:
            for name in ("add_generation_prompt", "chat_template_kwargs", "continue_final_message", "tools"):
                if name in self.model_fields_set:
                    raise Misfit(name, f"{name} needs messages; a prompt has no template")
        elif self.add_special_tokens:
            raise Misfit("add_special_tokens", "the template sets the marks of messages; allowed: false")
        else:
            check_tools(self.tools)
            check_end(self.messages, self.add_generation_prompt, self.continue_final_message)
        return self

    @property
    def talk(self) -> Talk:
        """What the chat template gets of messages."""
        return Talk(
            tuple(message.plain() for message in self.messages or ()),
            tuple(tool.plain() for tool in self.tools),
            self.chat_template_kwargs,
            add_generation_prompt=self.add_generation_prompt is not False and not self.continue_final_message,
            continue_final_message=self.continue_final_message,
        )


class DetokenizeBody(Body):
    """Token ids to be turned into text, special tokens included."""

    model: str = Field(description="Whose tokenizer: an adapter, endpoint or base model.")
    tokens: list[TokenId] = Field(max_length=MAX_TOKENS, description="Ids of the model's vocabulary.")


def parse_tokenize(body: Mapping[str, Any]) -> TokenizeBody:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(TokenizeBody, body)


def parse_detokenize(body: Mapping[str, Any]) -> DetokenizeBody:
    """Raises UnknownParameter or InvalidField."""
    return parse(DetokenizeBody, body)
