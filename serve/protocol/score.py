"""Body of POST /v1/score, as vLLM has it for models that make vectors."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, model_validator

from serve.protocol.body import Misfit, parse
from serve.protocol.embeddings import Text, Texts, VectorBody


class ScoreBody(VectorBody):
    """Pairs of texts: one with each of many, or two lists of the same length, member by member."""

    neutral: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        **VectorBody.neutral,
        "chat_template_kwargs": ({},),
        "instruction": (),
        "max_tokens_per_doc": (0,),
        "max_tokens_per_query": (0,),
    }

    text_1: Texts | None = Field(default=None, description="The one side; this or queries.")
    text_2: Texts | None = Field(default=None, description="The other side; this or documents.")
    queries: Texts | None = Field(default=None, description="Another name of text_1.")
    documents: Texts | None = Field(default=None, description="Another name of text_2.")

    @model_validator(mode="after")
    def _pairs(self) -> "ScoreBody":
        given = {name for name in ("text_1", "text_2", "queries", "documents") if getattr(self, name)}
        if given not in ({"text_1", "text_2"}, {"queries", "documents"}):
            met = ", ".join(sorted(given)) or "none of them"
            raise Misfit("text_1", f"text_1 and text_2 are needed, or queries and documents; given: {met}")
        if len(self.left) not in (1, len(self.right)):
            name = "text_1" if self.text_1 else "queries"
            raise Misfit(name, f"{name} has {len(self.left)} texts; allowed: 1 or {len(self.right)}")
        return self

    @property
    def left(self) -> list[Text]:
        """One text, or as many as there are on the right."""
        return self.text_1 or self.queries or []

    @property
    def right(self) -> list[Text]:
        """Every text that gets a score."""
        return self.text_2 or self.documents or []

    @property
    def sides(self) -> dict[str, list[Text]]:
        """Both, by the names they came under."""
        names = ("text_1", "text_2") if self.text_1 else ("queries", "documents")
        return dict(zip(names, (self.left, self.right), strict=True))


def parse_score(body: Mapping[str, Any]) -> ScoreBody:
    """Raises UnsupportedParameter, UnknownParameter or InvalidField."""
    return parse(ScoreBody, body)
