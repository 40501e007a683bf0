"""The words that rows share: statuses, kinds and verdicts as Literals."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

AdapterStatus: TypeAlias = Literal["candidate", "canary", "prod", "retired", "rejected"]
FeedbackKind: TypeAlias = Literal["thumbs", "regenerate", "edit", "comment"]
Finish: TypeAlias = Literal["stop", "length", "abort", "error", "interrupted"]
RequestApi: TypeAlias = Literal["chat", "completions", "responses", "embeddings", "score"]
RequestSource: TypeAlias = Literal["traffic", "eval"]
Variant: TypeAlias = Literal["prod", "canary", "base", "direct"]
RunStatus: TypeAlias = Literal["running", "finished", "failed"]
Verdict: TypeAlias = Literal["superior", "non-inferior", "worse", "inconclusive"]
Json: TypeAlias = Mapping[str, Any]
