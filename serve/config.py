"""Settings of the serving app: plain frozen values that travel to every replica. Reads no environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine.config import EngineConfig
from engine.embeddingspec import Pooling
from lora.store import S3Options

ToolParser = Literal["auto", "hermes", "llama3", "mistral", "none"]
ReasoningParser = Literal["auto", "think", "none"]

Task = Literal["generate", "embed"]
"""What a base model is served for."""

# OpenMP threads that spin while they wait slow every neighbour on the same cores several times.
QUIET_THREADS: Mapping[str, str] = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One base model and its replicas.

    task: whether it generates text or makes vectors. pooling, normalize: how it makes vectors, where its
        folder shall not decide; see engine.embeddingspec.
    aliases: further names by which an adapter may call this base in base_model_name_or_path; `name@revision`
        for each revision of such a name, where they are known.
    env: environment of the replica's process.
    tool_parser, reasoning_parser: the form in which the model writes calls and thoughts; auto: as its chat
        template shows.
    """

    name: str
    folder: Path
    engine: EngineConfig
    task: Task = "generate"
    pooling: Pooling | None = None
    normalize: bool | None = None
    replicas: int = 1
    num_cpus: float = 0.0
    num_gpus: float = 0.0
    aliases: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: dict(QUIET_THREADS))
    tool_parser: ToolParser = "auto"
    reasoning_parser: ReasoningParser = "auto"

    @property
    def base_names(self) -> tuple[str, ...]:
        """What an adapter may call this base model."""
        return (self.name, str(self.folder), *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """The whole app.

    store_url, s3: the store of adapters and files, shared by gateways and replicas, as open_store takes them.
    cache_root: local copies of adapters.
    spool_dir: request records on their way to the database; local to a machine.
    adapter_roots: folders from which the admin API may load. admin_key None leaves the admin API open.
    require_api_key: answer only requests that carry a key of the database.
    gateways: gateway processes, all listening on (host, port).
    keep_responses_days: how long answers of the Responses API are kept.
    max_body_bytes, max_file_bytes, spool_bytes: upper bounds in bytes. adapter_disk_bytes: the same, of local
        copies of adapters; those unused for longest are removed.
    batch_lines: requests of batches that one gateway has under way at once; batch_lines_beside: above so many
        none begins while it has interactive ones.
    keep_alive_s: after how much silence a stream sends a comment, in seconds.
    drain_s: how long a stopping gateway or replica lets its streams finish, in seconds.
    """

    models: tuple[ModelConfig, ...]
    database_url: str
    store_url: str
    cache_root: Path
    spool_dir: Path
    s3: S3Options | None = None
    adapter_roots: tuple[Path, ...] = ()
    admin_key: str | None = None
    require_api_key: bool = False
    host: str = "127.0.0.1"
    port: int = 8000
    gateways: int = 1
    max_body_bytes: int = 4 << 20
    max_file_bytes: int = 200 << 20
    batch_lines: int = 16
    batch_lines_beside: int = 1
    spool_bytes: int = 1 << 30
    adapter_disk_bytes: int = 32 << 30
    keep_responses_days: int = 30
    keep_alive_s: float = 15.0
    drain_s: float = 5.0

    def model(self, name: str) -> ModelConfig:
        """Raises KeyError for a name that is not configured."""
        return {model.name: model for model in self.models}[name]
