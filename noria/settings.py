"""Settings of one noria instance: defaults, then a TOML file, then the environment, then the command line.

This is the only module that reads the environment or a settings file. Every other package receives plain
frozen values built from what is loaded here.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lora.errors import InvalidStore
from lora.store import S3Options, check_store
from lora.store.options import Addressing
from noria.errors import SettingsError
from serve.config import ReasoningParser, ToolParser

EMBEDDED_MODEL = "smollm2-135m"

_S3_FIELDS = ("endpoint_url", "region", "addressing", "checksums", "timeout_s")
_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_bytes(value: object) -> object:
    """Turn "512MiB" into 536870912; numbers pass through to pydantic's own checks."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError("a size such as 1073741824, 512MiB or 1GiB is expected")
    return int(match[1]) * _UNITS[match[2].upper()]


def check_database_url(value: str) -> str:
    """Refuse what is no PostgreSQL URL before anything tries to connect to it."""
    try:
        parts = urlsplit(value)
        fine = parts.scheme in ("postgresql", "postgres") and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("a URL such as postgresql://user@host:5432/database is expected")
    return value


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Section):
    """Where the HTTP endpoint listens and who may call it."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)
    admin_key: str | None = None
    """Bearer key of the admin API. None: open on a loopback host, refused on any other."""
    require_api_key: bool = False
    """Only requests with a key of serve.api_key are answered."""
    replicas: int = Field(default=1, ge=1)
    """Gateway processes."""
    max_file_bytes: Bytes = 200 << 20
    """Of one file that a client uploads."""
    batch_lines: int = Field(default=16, ge=1, le=1024)
    """Requests of batches that one gateway has under way at once while nobody else asks."""
    batch_lines_beside: int = Field(default=1, ge=1, le=1024)
    """Above so many none begins while the gateway has interactive requests."""
    keep_alive_s: float = Field(default=15.0, gt=0)
    """After how much silence a stream sends a comment, so that proxies on the way keep it open."""


class DatabaseSettings(_Section):
    """An external PostgreSQL 18 with pgvector, or none for the embedded one."""

    url: Annotated[str, AfterValidator(check_database_url)] | None = None
    keep_responses_days: int = Field(default=30, ge=1, le=3650)
    """How long answers of the Responses API are kept, to be read and gone on from."""


class StoreSettings(_Section):
    """Where adapters are kept and from where the admin API may load them."""

    url: str | None = None
    """file:///folder or s3://bucket/prefix; None is the folder store/ of the data. S3 credentials are found
    by boto3's own chain (AWS_* variables, a profile, the role of the machine or pod)."""
    endpoint_url: str | None = None
    """Of an S3 server that is not AWS: MinIO, Ceph and the like."""
    region: str | None = None
    addressing: Addressing = "auto"
    """path: the bucket in the path, virtual: in the host's name; auto: path with an endpoint_url."""
    checksums: bool = True
    """SHA-256 sums in the protocol itself; false for an S3 server that refuses them."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Of one answer of an S3 server."""
    adapter_roots: tuple[Path, ...] = ()
    disk_bytes: Bytes = 32 << 30
    """Of the copies of adapters that a machine keeps; those unused for longest are removed."""


class ModelSettings(_Section):
    """One base model and the engine that serves it."""

    id: str = Field(min_length=1, max_length=200)
    source: str
    """The embedded model's name, a Hugging Face folder, a GGUF file, or org/repo[@revision] of the hub."""
    task: Literal["generate", "embed"] = "generate"
    """embed: it makes vectors of texts for /v1/embeddings, and generates none; it has no KV pool."""
    pooling: Literal["mean", "cls", "last"] | None = None
    """Of task embed: from the vectors of a text's tokens to one, where the model's folder does not say."""
    normalize: bool | None = None
    """Of task embed: whether vectors have length 1, where the model's folder does not say."""
    known_as: tuple[str, ...] = ()
    """What adapters may name as their base besides the id and the folder; of a hub model its repository."""
    replicas: int = Field(default=1, ge=1)
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    backend: Literal["auto", "native", "reference"] = "auto"
    weights: Literal["model", "int8"] = "model"
    """int8: linear layers and head in eight bits, near twice as fast and not quite the model; native only."""
    kv_cache: Literal["model", "int8"] = "model"
    """int8: keys and values in eight bits, about twice as many tokens in kv_bytes; native only."""
    memory_bytes: Bytes | None = None
    """Of a replica's whole process; its KV pool gets what weights, adapters, a step and headroom leave."""
    kv_bytes: Bytes | None = None
    """Of the KV pool alone, instead; 1 GiB where neither is given."""
    max_model_len: int | None = Field(default=None, ge=16)
    max_num_seqs: int = Field(default=64, ge=1)
    max_batched_tokens: int = Field(default=512, ge=16)
    max_waiting: int = Field(default=1024, ge=1)
    adapter_slots: int = Field(default=8, ge=1)
    """Adapters that one step may have; more take turns."""
    adapter_bytes: Bytes | None = None
    """Of all adapters in memory; without it what adapter_slots of them take at max_lora_rank."""
    max_lora_rank: int = Field(default=64, ge=1)
    prefix_cache: bool = True
    policy: Literal["max_utilization", "guaranteed_no_evict"] = "max_utilization"
    """Whether requests are admitted while blocks last, or only when all they may ever need is promised."""
    swap_bytes: Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)] = 0
    """Host memory for the KV blocks of preempted requests; 0 computes them again."""
    threads: int | None = Field(default=None, ge=1, le=256)
    tool_parser: ToolParser = "auto"
    """The form in which the model writes calls of tools; auto: as its chat template shows; none: no tools."""
    reasoning_parser: ReasoningParser = "auto"
    """think: thoughts between <think> and </think> are told apart; auto: where the chat template has them."""
    num_cpus: float = Field(default=0.0, ge=0)
    """CPUs that Ray sets aside for a replica: 0 on one machine, more on a cluster to spread over nodes."""
    num_gpus: float = Field(default=0.0, ge=0)


_OF_EMBEDDING = ("pooling", "normalize")
_OF_GENERATION = (
    "backend", "weights", "kv_cache", "memory_bytes", "kv_bytes", "max_num_seqs", "max_batched_tokens",
    "prefix_cache", "policy", "swap_bytes", "tool_parser", "reasoning_parser",
)  # fmt: skip


class EndpointSettings(_Section):
    """A stable name for clients; created at start if the registry does not know it."""

    name: str = Field(min_length=1, max_length=200)
    model: str


class Settings(_Section):
    """All settings of an instance; `load` is the way to make one."""

    data: Path = Path(".noria")
    server: ServerSettings = ServerSettings()
    database: DatabaseSettings = DatabaseSettings()
    store: StoreSettings = StoreSettings()
    models: tuple[ModelSettings, ...] = (ModelSettings(id=EMBEDDED_MODEL, source=EMBEDDED_MODEL),)
    endpoints: tuple[EndpointSettings, ...] = ()
    ray_address: str | None = None
    """A running Ray cluster to join; None starts one of its own on this machine."""

    @property
    def store_url(self) -> str:
        """URL of the adapter store."""
        return self.store.url or (self.data / "store").absolute().as_uri()

    @property
    def s3(self) -> S3Options | None:
        """How the adapter store's server is spoken to; None for a folder."""
        if not self.store_url.startswith("s3://"):
            return None
        return S3Options(**self.store.model_dump(include=set(_S3_FIELDS)))

    @property
    def cache_root(self) -> Path:
        """Folder of what the processes of this machine keep: adapters, the last registry, local stops."""
        return self.data / "cache"

    @property
    def adapter_roots(self) -> tuple[Path, ...]:
        """Folders from which the admin API may load."""
        return self.store.adapter_roots or (self.data / "adapters",)

    def model(self, model_id: str) -> ModelSettings:
        """The base model of that id. Raises SettingsError."""
        for model in self.models:
            if model.id == model_id:
                return model
        known = ", ".join(model.id for model in self.models)
        raise SettingsError(f"no base model is called {model_id!r}; the settings name: {known}")


_ENVIRONMENT = {
    "NORIA_DATA": ("data",),
    "NORIA_HOST": ("server", "host"),
    "NORIA_PORT": ("server", "port"),
    "NORIA_ADMIN_KEY": ("server", "admin_key"),
    "NORIA_DATABASE_URL": ("database", "url"),
    "NORIA_RAY_ADDRESS": ("ray_address",),
}
CONFIG_VARIABLE = "NORIA_CONFIG"


def load(
    config: Path | None = None,
    overrides: Mapping[tuple[str, ...], Any] | None = None,
    models: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Load the settings; `overrides` maps a path such as ("server", "port") to a value from the command line.

    `models` holds ID=SOURCE words; given any, they replace the models of the file. Raises SettingsError with
    one line that names the setting, the value met and what is allowed.
    """
    env = os.environ if environment is None else environment
    config = config or (Path(env[CONFIG_VARIABLE]) if env.get(CONFIG_VARIABLE) else None)
    tree = _read_toml(config) if config else {}
    for variable, path in _ENVIRONMENT.items():
        if env.get(variable):
            _put(tree, path, env[variable])
    for path, value in (overrides or {}).items():
        if value is not None:
            _put(tree, path, value)
    if models:
        tree["models"] = [_model_word(word) for word in models]
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        raise SettingsError(_first_problem(error)) from error
    _check_names(settings)
    _check_store(settings)
    return _absolute(settings)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"the settings file {path} does not exist") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {path} is not valid TOML: {error}") from error


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
        if not isinstance(tree, dict):
            raise SettingsError(f"the setting {key!r} must be a table, got {tree!r}")
    tree[path[-1]] = value


def _model_word(word: str) -> dict[str, str]:
    model_id, equals, source = word.partition("=")
    if not equals or not model_id or not source:
        raise SettingsError(f"--model expects ID=SOURCE, got {word!r}")
    return {"id": model_id, "source": source}


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"]) or "settings"
    unknown = problem["type"] == "extra_forbidden"
    message = "no setting has this name" if unknown else problem["msg"].removeprefix("Value error, ")
    return f"setting {where}: {message}, got {_without_password(problem['input'])}"


def _without_password(value: object) -> str:
    return re.sub(r"://[^/@]*@", "://***@", repr(value))


def _check_names(settings: Settings) -> None:
    names = [model.id for model in settings.models] + [endpoint.name for endpoint in settings.endpoints]
    if not settings.models:
        raise SettingsError("setting models: at least one base model is needed, got none")
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"the name {name!r} is used {names.count(name)} times; names must differ")
    for endpoint in settings.endpoints:
        settings.model(endpoint.model)
    for model in settings.models:
        _check_task(model)
    loopback = settings.server.host in ("127.0.0.1", "localhost", "::1")
    if not loopback and not settings.server.admin_key:
        raise SettingsError(
            f"setting server.admin_key: needed when listening on {settings.server.host!r}; "
            "set NORIA_ADMIN_KEY, or listen on 127.0.0.1"
        )


def _check_task(model: ModelSettings) -> None:
    """A setting that would change nothing is a mistake."""
    foreign = _OF_GENERATION if model.task == "embed" else _OF_EMBEDDING
    for name in foreign:
        if name in model.model_fields_set:
            raise SettingsError(
                f"setting {name} of model {model.id!r}: a model of task {model.task!r} does not have it, "
                f"got {getattr(model, name)!r}"
            )


def _check_store(settings: Settings) -> None:
    given = [name for name in _S3_FIELDS if name in settings.store.model_fields_set]
    try:
        s3 = settings.s3
        check_store(settings.store_url, s3)
    except InvalidStore as error:
        raise SettingsError(f"setting store.{error.option}: allowed is {error.allowed}") from error
    if s3 is None and given:
        raise SettingsError(f"setting store.{given[0]}: only a store at s3://bucket/prefix has it")


def _absolute(settings: Settings) -> Settings:
    """Make every path absolute once, so that replicas with another working directory agree."""
    store = settings.store.model_copy(
        update={
            "adapter_roots": tuple(root.absolute() for root in settings.store.adapter_roots),
        }
    )
    return settings.model_copy(update={"data": settings.data.absolute(), "store": store})
