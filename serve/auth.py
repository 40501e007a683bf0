"""Who calls: API keys for the OpenAI surface, one admin key for changes. Keys are compared by digest."""

import hashlib
import hmac
from collections.abc import Mapping

from serve.errors import Forbidden, Unauthorized

DEFAULT_TENANT = "default"


class Doorkeeper:
    """Decides who may pass. `keys` maps the sha256 of a valid API key to its tenant; None asks for none."""

    def __init__(self, admin_key: str | None, keys: Mapping[str, str] | None) -> None:
        self._admin = None if admin_key is None else key_digest(admin_key)
        self._keys = keys

    def set_keys(self, keys: Mapping[str, str]) -> None:
        """A newer picture of the valid keys."""
        self._keys = keys

    def tenant(self, headers: Mapping[str, str]) -> str:
        """The tenant of a caller. Raises Unauthorized."""
        if self._keys is None:
            return DEFAULT_TENANT
        digest = key_digest(_bearer(headers))
        if self._is_admin(digest):
            return DEFAULT_TENANT
        tenant = self._keys.get(digest)
        if tenant is None:
            raise Unauthorized
        return tenant

    def admin(self, headers: Mapping[str, str]) -> None:
        """Raises Unauthorized without any key, Forbidden with a wrong one."""
        if self._admin is None:
            return
        sent = _bearer(headers)
        if not sent:
            raise Unauthorized
        if not self._is_admin(key_digest(sent)):
            raise Forbidden

    def _is_admin(self, digest: str) -> bool:
        return self._admin is not None and hmac.compare_digest(digest, self._admin)


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def key_digest(key: str) -> str:
    """What is stored and compared instead of a key."""
    return hashlib.sha256(key.encode()).hexdigest()
