"""One request, understood: what is asked, by whom, of which adapter. Makes jobs and records of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from db.rows import RequestRecord
from engine.grammar import Grammar
from engine.records import Request
from serve.answers.shown import Shown
from serve.begun import begun, who_headers
from serve.caller import Caller
from serve.choice import Reading
from serve.errors import ContextTooLong
from serve.generation import Job
from serve.parsing.choose import MakeParser
from serve.parsing.plain import PlainParser
from serve.protocol.chat import ChatBody
from serve.protocol.completions import CompletionBody
from serve.protocol.sampling import TokenSequences, Wanted, to_sampling
from serve.routing import Route
from serve.visible import VisibleText, all_special

Api = Literal["chat", "completions", "responses"]

_PROMPT_PARAMETER: dict[Api, str] = {"chat": "messages", "completions": "prompt", "responses": "input"}

BACKGROUND = 1 << 32
"""Added to the priority of what nobody waits for; `priority` of a body is within 32 bits, of either sign."""
BACKGROUND_FROM = BACKGROUND - (1 << 31)
"""Priorities from here on are of what nobody waits for, and none below."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its token ids, how the record shows it, and its text where answers may begin with it.

    parser: makes what reads each of its answers. visible: special tokens that it has to see.
    grammar: what they have to keep to.
    """

    ids: tuple[int, ...]
    shown: tuple[Mapping[str, Any], ...]
    text: str = ""
    parser: MakeParser = PlainParser
    visible: frozenset[int] = frozenset()
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A checked body with its caller, its route, and its bad words as tokens."""

    api: Api
    body: ChatBody | CompletionBody
    caller: Caller
    route: Route
    bad_words: TokenSequences

    def cut(self, prompt: Prompt, max_model_len: int) -> Prompt:
        """The prompt, or as much of its end as truncate_prompt_tokens keeps."""
        keep = self.body.truncate_prompt_tokens
        if keep == -1:
            keep = max(1, max_model_len - (self.body.limit or 1))
        if keep is None or keep >= len(prompt.ids):
            return prompt
        ids = prompt.ids[-keep:]
        return replace(prompt, ids=ids, text=self.reads.prompt_text(ids) if prompt.text else "")

    @property
    def shown(self) -> Shown:
        """What its answers show beside their text."""
        body = self.body
        return Shown(
            logprobs=body.wanted_logprobs,
            prompt_logprobs=body.prompt_logprobs,
            usage=body.include_usage,
            continuous_usage=body.continuous_usage,
            token_ids=body.return_token_ids,
            tokens_as_ids=body.return_tokens_as_token_ids,
            echo=isinstance(body, CompletionBody) and body.echo,
        )

    @property
    def reads(self) -> VisibleText:
        """How tokens of its answers are read."""
        tokenizer = self.route.model.tokenizer
        special = () if self.body.skip_special_tokens else all_special(tokenizer)
        continues = isinstance(self.body, CompletionBody) or self.body.continue_final_message
        return VisibleText(tokenizer, special, continues=continues)

    def wanted(self, prompt: Prompt, max_model_len: int) -> Wanted:
        """max_tokens, clamped to the room that the prompt leaves. Raises ContextTooLong if it leaves none."""
        room = max_model_len - len(prompt.ids)
        if room < 1:
            raise ContextTooLong(len(prompt.ids), max_model_len, _PROMPT_PARAMETER[self.api])
        limit = room if self.body.limit is None else min(self.body.limit, room)
        # The engine makes one token at least; where none is wanted nobody sees it.
        return Wanted(max(limit, 1), self.body.wanted_logprobs, self.body.scored, prompt.grammar)

    def job(self, first: int, record_id: str, prompt: Prompt, wanted: Wanted) -> Job:
        """All choices of a prompt, from the `first` of the whole answer on; record_id: of that one."""
        request = Request(
            id=record_id,
            prompt=prompt.ids,
            sampling=to_sampling(self.body, wanted, self.bad_words),
            adapter=self.route.adapter_digest,
            # Tenants never share prefix blocks, so none can learn another's prompts by timing.
            cache_salt=f"{self.caller.tenant}\x1f{self.body.cache_salt}",
            priority=self.body.priority + (BACKGROUND if self.caller.background else 0),
        )
        reads = self.reads
        if self.body.skip_special_tokens:
            reads = replace(reads, special=prompt.visible)
        reading = Reading(
            text=reads,
            eos_ids=self.route.model.tokenizer.eos_ids,
            stops=tuple(self.body.stop),
            include_stop=self.body.include_stop_str_in_output,
            only_prompt=self.body.limit == 0,
        )
        return Job(first, request, reading, self.route.forced)

    def record(self, record_id: str, prompt: Prompt) -> RequestRecord:
        """The record as it stands if this process dies now."""
        return begun(
            self.api,
            self.caller,
            self.route,
            self.body,
            record_id=record_id,
            prompt_tokens=len(prompt.ids),
            messages=prompt.shown,
            stream=self.body.stream,
        )

    def headers(self, ids: list[str]) -> dict[str, str]:
        """Response headers that say who answers; `ids` are those of the choices' records."""
        headers = who_headers(self.caller, self.route)
        return headers | ({"x-noria-choice-ids": ",".join(ids)} if len(ids) > 1 else {})
