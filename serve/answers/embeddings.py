"""The JSON of an answer full of vectors, which is long: it is written piece by piece, on any thread."""

import json
from base64 import b64encode
from collections.abc import Iterator

from serve.protocol.embeddings import EmbeddingBody
from serve.vectors import Vectors


def written(body: EmbeddingBody, request_id: str, vectors: Vectors) -> Iterator[bytes]:
    """The answer's JSON, one vector at a time."""
    head = {"id": f"embd-{request_id}", "object": "list", "model": body.model, "usage": vectors.usage()}
    yield json.dumps(head).encode()[:-1] + b', "data": ['
    for place in range(len(vectors)):
        told: object = vectors.row(place).tolist()
        if body.encoding_format == "base64":
            told = b64encode(vectors.packed(place)).decode()
        item = {"object": "embedding", "index": place, "embedding": told}
        yield (b", " if place else b"") + json.dumps(item).encode()
    yield b"]}"
