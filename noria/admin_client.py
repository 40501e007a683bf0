"""The running instance's admin API, as the command uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx

from noria.errors import AdminRefused, NotRunning
from noria.instance import running_url
from noria.settings import Settings

TIMEOUT_S = 600.0
"""A load reads, copies and prepares the adapter on every replica."""


class AdminClient:
    """Talks to the instance on one data folder. Every call raises NotRunning or AdminRefused."""

    def __init__(self, settings: Settings) -> None:
        """Raises NotRunning."""
        self._url = running_url(settings)
        key = settings.server.admin_key
        self._headers = {"accept": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})

    def load(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Load or replace an adapter; fields as in the API."""
        return self._call("POST", "load_lora_adapter", body)

    def unload(self, name: str) -> dict[str, Any]:
        """Stop naming an adapter, and free it."""
        return self._call("POST", "unload_lora_adapter", {"lora_name": name})

    def show(self, name: str) -> dict[str, Any]:
        """One adapter and where it is."""
        return self._call("GET", f"adapters/{quote(name, safe='')}")

    def act(self, name: str, action: str) -> dict[str, Any]:
        """pin, unpin or check."""
        return self._call("POST", f"adapters/{quote(name, safe='')}/{action}")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        url = f"{self._url}/{path}"
        try:
            answer = httpx.request(method, url, json=body, headers=self._headers, timeout=TIMEOUT_S)
        except httpx.TransportError as error:
            raise NotRunning(f"{self._url} does not answer: {error}") from error
        if answer.is_error:
            raise AdminRefused(_reason(answer))
        told: dict[str, Any] = answer.json()
        return told


def _reason(answer: httpx.Response) -> str:
    try:
        error = answer.json()["error"]
        return f"{error['message']} ({error['code']})"
    except (ValueError, KeyError, TypeError):  # somebody else's answer, such as a proxy's page
        return f"{answer.request.url} answered {answer.status_code}"
