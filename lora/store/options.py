"""How an S3 server is spoken to, where its defaults are not those of AWS."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from lora.errors import InvalidStore

Addressing = Literal["auto", "path", "virtual"]


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Credentials are not among them: boto3 finds them by its own chain (environment, profile, role).

    endpoint_url: of MinIO, Ceph and the like; None is AWS.
    region: None is the environment's, or what the server takes for granted.
    addressing: "path" puts the bucket into the path, "virtual" into the host's name; "auto" is "path" with an
        endpoint_url and "virtual" on AWS.
    checksums: send and check SHA-256 sums in the protocol itself; False for a server that does not know them.
    timeout_s: of one answer, in seconds. attempts: of one call, the first counted.

    Raises InvalidStore for an endpoint_url that is no http(s) URL or holds credentials.
    """

    endpoint_url: str | None = None
    region: str | None = None
    addressing: Addressing = "auto"
    checksums: bool = True
    timeout_s: float = 30.0
    attempts: int = 4

    def __post_init__(self) -> None:
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url)

    @property
    def style(self) -> Literal["path", "virtual"]:
        """How the bucket is addressed in the end."""
        if self.addressing != "auto":
            return self.addressing
        return "virtual" if self.endpoint_url is None else "path"


def _check_endpoint(text: str) -> None:
    try:
        url = urlsplit(text)
        fine = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise InvalidStore("endpoint_url", "http://host:port or https://host")
    if "@" in url.netloc or url.query or url.fragment:
        raise InvalidStore("endpoint_url", "a URL without user, password, query or fragment")
