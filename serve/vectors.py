"""From texts to vectors: name resolved, texts tokenised, a replica asked, the record kept. Knows no HTTP."""

from array import array
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.rows import RequestApi
from serve.begun import begun, who_headers
from serve.caller import Caller
from serve.choice import Tally
from serve.errors import InvalidField, RemoteError, ReplicaLost
from serve.fleet import Fleet, Member
from serve.metrics import BASE, Meter, Metrics
from serve.prompts import beside
from serve.protocol.embeddings import EmbeddingBody, Text, VectorBody
from serve.record.keeper import Entry, Keeper
from serve.routing import Route, Router
from serve.texts import TextReader

ANSWER_BYTES = 16 << 20
"""Of the vectors that a replica sends in one message: larger requests are asked for in parts."""
_FLOAT = 4


@dataclass(frozen=True, slots=True)
class Vectors:
    """The answer. data: float32 [texts, dim], little-endian. headers: say who answered."""

    data: bytes
    dim: int
    prompt_tokens: int
    headers: dict[str, str]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.data) // (_FLOAT * self.dim)

    def packed(self, place: int) -> bytes:
        """The bytes of one vector."""
        size = _FLOAT * self.dim
        return self.data[place * size : (place + 1) * size]

    def row(self, place: int) -> "array[float]":
        """The numbers of one vector."""
        return array("f", self.packed(place))

    def usage(self) -> dict[str, int]:
        """Tokens of the request."""
        return {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for. texts: by the name of the parameter that brought them."""

    api: RequestApi
    body: VectorBody
    texts: Mapping[str, Sequence[Text]]
    dimensions: int | None = None

    @classmethod
    def of_embeddings(cls, body: EmbeddingBody) -> "Wish":
        """What POST /v1/embeddings, or such a line of a batch, asks for."""
        return cls("embeddings", body, {"input": body.input}, body.dimensions)

    @property
    def characters(self) -> int:
        """About how much there is to tokenise."""
        return sum(len(text) for texts in self.texts.values() for text in texts)


class VectorMaker:
    """Has replicas of models of task "embed" make vectors."""

    def __init__(self, router: Router, fleet: Fleet, keeper: Keeper, metrics: Metrics) -> None:
        self._router = router
        self._fleet = fleet
        self._keeper = keeper
        self._metrics = metrics

    async def make(self, wish: Wish, caller: Caller) -> Vectors:
        """Vectors of all texts, in order. Cancelled, texts whose turn has not come are not computed.

        Raises UnknownModel, WrongTask, BadRequest, NoReplica, RemoteError, ReplicaLost and the tokenizer's
        errors.
        """
        key = wish.body.user_key or caller.user or caller.id
        route = self._router.route(wish.body.model, key, "embed")
        dim = _dimensions(wish.dimensions, route)
        member = self._fleet.pick(route.model.name, route.adapter_digest)
        vocabulary, longest = route.model.spec.vocab_size, member.report.max_model_len
        reader = TextReader(route.model.tokenizer, wish.body, vocabulary, longest)
        ids, shown = await beside(wish.characters, lambda: _read(reader, wish))
        tally = Tally(sum(map(len, ids)))
        entry = self._begin(wish, caller, route, shown, tally)
        data = await self._recorded(_ask(member, route, ids, dim), route, entry, tally)
        return Vectors(data, dim, tally.prompt_tokens, who_headers(caller, route))

    def _begin(
        self, wish: Wish, caller: Caller, route: Route, shown: list[dict[str, Any]], tally: Tally
    ) -> Entry:
        self._metrics.routed(route.endpoint, route.variant, route.adapter_id)
        record = begun(
            wish.api,
            caller,
            route,
            wish.body,
            record_id=caller.id,
            prompt_tokens=tally.prompt_tokens,
            messages=shown,
            stream=False,
        )
        entry = self._keeper.entry(record)
        entry.begin()
        return entry

    async def _recorded(self, asking: Awaitable[bytes], route: Route, entry: Entry, tally: Tally) -> bytes:
        """What the replica answers; however it ends, the record does too."""
        reason, error = "abort", None
        try:
            data = await asking
            reason = "stop"
            return data
        except (RemoteError, ReplicaLost) as failure:
            reason, error = "error", str(failure)
            raise
        finally:
            if entry.end(reason, error, tally, ""):
                meter = Meter(self._metrics, route.model.name, route.adapter_id or BASE)
                meter.finished(tally, reason)


def _dimensions(asked: int | None, route: Route) -> int:
    width = route.model.spec.hidden_size
    if asked is not None and asked > width:
        raise InvalidField(f"dimensions is {asked}; allowed: 1 to {width}", "dimensions")
    return asked or width


def _read(reader: TextReader, wish: Wish) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """Ids of all texts, and the texts as the record keeps them."""
    ids = [ids for param, texts in wish.texts.items() for ids in reader.read(texts, param)]
    return ids, [message for texts in wish.texts.values() for message in reader.shown(texts)]


async def _ask(member: Member, route: Route, texts: list[list[int]], dim: int) -> bytes:
    """Parts follow each other: a request of many texts does not fill the queue all at once."""
    part = max(1, ANSWER_BYTES // (_FLOAT * dim))
    answers: list[bytes] = []
    for first in range(0, len(texts), part):
        some = texts[first : first + part]
        answers.append(await member.link.call("embed", some, route.adapter_digest, route.forced, dim))
    return b"".join(answers)
