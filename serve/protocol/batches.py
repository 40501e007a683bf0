"""What POST /v1/batches and GET /v1/batches take, and one line of a batch's input."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from serve.protocol.body import Body, parse
from serve.protocol.files import ExpiresAfter, FileId

BatchEndpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]
MetadataKey = Annotated[str, StringConstraints(max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


class BatchBody(Body):
    """A batch to be run."""

    input_file_id: FileId = Field(description="An uploaded file: one JSON object a line, each a request.")
    endpoint: BatchEndpoint = Field(description="What every line calls.")
    completion_window: Literal["24h"] = Field(description="How long it may take.")
    metadata: dict[MetadataKey, MetadataValue] | None = Field(
        default=None, max_length=16, description="Whatever the client wants to keep with it."
    )
    output_expires_after: ExpiresAfter | None = Field(
        default=None, description="When the files of answers go by themselves; by default never."
    )


class BatchQuery(Body):
    """A page of batches, the newest first."""

    model_config = ConfigDict(strict=False)

    limit: int = Field(default=20, ge=1, le=100, description="How many.")
    after: FileId | None = Field(default=None, description="Begin behind this batch.")


class BatchLine(Body):
    """One request of a batch."""

    custom_id: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    method: Literal["POST"]
    url: BatchEndpoint
    body: dict[str, Any]


def parse_batch(body: Mapping[str, Any]) -> BatchBody:
    """Raises UnknownParameter or InvalidField."""
    return parse(BatchBody, body)


def parse_batch_query(parameters: Mapping[str, str]) -> BatchQuery:
    """Raises UnknownParameter or InvalidField."""
    return parse(BatchQuery, parameters)


def parse_line(line: Mapping[str, Any]) -> BatchLine:
    """Raises UnknownParameter or InvalidField."""
    return parse(BatchLine, line)
