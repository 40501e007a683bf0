"""What POST /v1/files and GET /v1/files take."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from serve.protocol.body import Body, parse

FileName = Annotated[
    str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
_ID = re.compile("[A-Za-z0-9_-]{1,128}")
FileId = Annotated[str, StringConstraints(pattern=f"^{_ID.pattern}$")]
_FOREVER = 30 * 86_400


class ExpiresAfter(Body):
    """How long a file is kept."""

    anchor: Literal["created_at"] = Field(description="From when on the time counts.")
    seconds: int = Field(ge=3600, le=_FOREVER, description="One hour to thirty days.")


class FormExpiresAfter(ExpiresAfter):
    """The same in a form, whose values are texts: expires_after[anchor], expires_after[seconds]."""

    model_config = ConfigDict(strict=False)


class FileBody(Body):
    """A form with a file. What is checked here of the file is its name; its bytes are read as they come."""

    model_config = ConfigDict(strict=False)

    file: FileName = Field(
        description="The file itself, with a name.", json_schema_extra={"format": "binary"}
    )
    purpose: Literal["batch"] = Field(description="What the file is for.")
    expires_after: FormExpiresAfter | None = Field(
        default=None, description="When the file goes by itself; by default after thirty days."
    )

    @property
    def lifetime(self) -> timedelta | None:
        """How long it is kept, where that is said."""
        return None if self.expires_after is None else timedelta(seconds=self.expires_after.seconds)


class FileQuery(Body):
    """A page of files."""

    model_config = ConfigDict(strict=False)

    limit: int = Field(default=10_000, ge=1, le=10_000, description="How many.")
    after: FileId | None = Field(default=None, description="Begin behind this file.")
    order: Literal["asc", "desc"] = Field(default="desc", description="By time of creation.")
    purpose: Literal["batch", "batch_output"] | None = Field(
        default=None, description="Only files of this purpose."
    )


def may_be_id(value: str) -> bool:
    """Whether a file, or a batch, could have this id; what is in a path may be anything."""
    return _ID.fullmatch(value) is not None


def parse_file(form: Mapping[str, Any]) -> FileBody:
    """Raises UnknownParameter or InvalidField."""
    return parse(FileBody, form)


def parse_file_query(parameters: Mapping[str, str]) -> FileQuery:
    """Raises UnknownParameter or InvalidField."""
    return parse(FileQuery, parameters)
