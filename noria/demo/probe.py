"""Asks the endpoint, with answers of one token that never train, which version serves whom right now."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import openai

from noria.demo.errors import StageFailed

PATIENCE_S = 30.0


class Probe:
    """A client for short questions; a context manager that closes its connections."""

    def __init__(self, url: str, model: str) -> None:
        self._client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60.0)
        self._model = model

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def adapter_for(self, user: str) -> str:
        """Id of the adapter that answers `user` now, or "base"."""
        raw = self._client.chat.completions.with_raw_response.create(
            model=self._model,
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=1,
            extra_headers={"x-noria-user": user, "x-noria-source": "eval"},
        )
        return str(raw.headers["x-noria-adapter"])

    def until(self, user: str, adapter: str) -> float:
        """Seconds until `adapter` answers `user`. Raises StageFailed after half a minute."""
        started = time.monotonic()
        while (seen := self.adapter_for(user)) != adapter:
            if time.monotonic() - started > PATIENCE_S:
                raise StageFailed(
                    f"after {PATIENCE_S:.0f} s {self._model!r} is still answered by {seen!r}, not {adapter!r}"
                )
        return time.monotonic() - started

    def until_named(self) -> float:
        """Seconds until the model of this probe can be called by its name. Raises StageFailed."""
        started = time.monotonic()
        while self._model not in {model.id for model in self._client.models.list()}:
            if time.monotonic() - started > PATIENCE_S:
                raise StageFailed(f"after {PATIENCE_S:.0f} s the platform does not list {self._model!r}")
            time.sleep(0.1)
        return time.monotonic() - started
