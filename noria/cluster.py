"""From settings to the Ray cluster and the Serve application that runs on it.

`app` is the import path of a RayService (noria.cluster:app); the embedded instance goes the same way.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from noria import models
from noria.hub import names_of
from noria.settings import ModelSettings, Settings, load

if TYPE_CHECKING:
    import ray.serve

    from serve.config import AppConfig

_OBJECT_STORE = 128 << 20
"""Bytes: almost nothing travels through Ray's object store here."""

_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Answering comes before training; Ray's own choice is 15.
    "RAY_worker_niceness": "0",
    # On a machine of its own nobody reads Ray's figures of itself. To gather them, to keep an account of
    # every task and to look ten times a second at every replica took 5 % of a core.
    "RAY_enable_metrics_collection": "false",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "10000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
}
"""Environment of the embedded cluster's processes; what is set already stays."""

_MAX_SESSION_PATH = 50
"""Ray puts sockets about 57 characters below its folder, and a socket path may have 107."""


def app_config(settings: Settings, url: str, folders: Mapping[str, Path]) -> AppConfig:
    """What the Serve application is told: `folders` maps each base model to its weights."""
    from serve.config import AppConfig, ModelConfig

    return AppConfig(
        models=tuple(
            ModelConfig(
                name=model.id,
                folder=folders[model.id],
                engine=engine_config(model, folders[model.id]),
                task=model.task,
                pooling=model.pooling,
                normalize=model.normalize,
                replicas=model.replicas,
                num_cpus=model.num_cpus,
                num_gpus=model.num_gpus,
                aliases=(*model.known_as, *names_of(folders[model.id])),
                tool_parser=model.tool_parser,
                reasoning_parser=model.reasoning_parser,
            )
            for model in settings.models
        ),
        database_url=url,
        store_url=settings.store_url,
        s3=settings.s3,
        cache_root=settings.cache_root,
        spool_dir=settings.data / "spool",
        adapter_roots=settings.adapter_roots,
        adapter_disk_bytes=settings.store.disk_bytes,
        admin_key=settings.server.admin_key,
        require_api_key=settings.server.require_api_key,
        keep_alive_s=settings.server.keep_alive_s,
        host=settings.server.host,
        port=settings.server.port,
        gateways=settings.server.replicas,
        keep_responses_days=settings.database.keep_responses_days,
        max_file_bytes=settings.server.max_file_bytes,
        batch_lines=settings.server.batch_lines,
        batch_lines_beside=settings.server.batch_lines_beside,
    )


def engine_config(model: ModelSettings, folder: Path) -> EngineConfig:
    """The engine of one base model."""
    return EngineConfig(
        model=folder,
        dtype=model.dtype,
        backend=model.backend,
        weights=model.weights,
        kv_cache=model.kv_cache,
        memory_bytes=model.memory_bytes,
        kv_bytes=model.kv_bytes,
        max_model_len=model.max_model_len,
        max_num_seqs=model.max_num_seqs,
        max_batched_tokens=model.max_batched_tokens,
        max_waiting=model.max_waiting,
        adapter_slots=model.adapter_slots,
        adapter_bytes=model.adapter_bytes,
        max_lora_rank=model.max_lora_rank,
        prefix_cache=model.prefix_cache,
        policy=model.policy,
        swap_bytes=model.swap_bytes,
        threads=model.threads,
    )


@contextmanager
def joined(settings: Settings) -> Iterator[None]:
    """A Ray cluster for the length of the block: the one of the settings, or one of this process's own."""
    for variable, value in _RAY_SETTINGS.items():
        os.environ.setdefault(variable, value)
    if settings.ray_address is None:
        _guard(settings.data / "ray.token")
    import ray

    on_terminate = signal.getsignal(signal.SIGTERM)
    if settings.ray_address:
        ray.init(address=settings.ray_address, namespace="noria", logging_level=logging.WARNING)
    else:
        ray.init(
            address="local",
            namespace="noria",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            object_store_memory=_OBJECT_STORE,
            _temp_dir=str(_session_folder(settings.data)),
        )
    signal.signal(signal.SIGTERM, on_terminate)  # Ray puts its own in place, which prints its stack
    try:
        yield
    finally:
        ray.shutdown()


def _guard(token: Path) -> None:
    """Let only holders of this instance's token talk to its Ray cluster; read when ray is imported."""
    if not token.exists():
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32), encoding="ascii")
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)


def _session_folder(data: Path) -> Path:
    """Ray's folder: in the data folder where its socket paths fit, else in /tmp with a link to it."""
    folder = data / "ray"
    if len(str(folder)) <= _MAX_SESSION_PATH:
        return folder
    short = Path("/tmp") / f"noria-ray-{hashlib.sha256(str(data).encode()).hexdigest()[:12]}"
    short.mkdir(mode=0o700, exist_ok=True)
    if not folder.is_symlink():
        folder.symlink_to(short)
    return short


def app(args: Mapping[str, Any]) -> ray.serve.Application:
    """The application of a cluster; `args` may hold `config`, the path of the settings file."""
    import serve.app
    from noria.registration import open_registered

    settings = load(Path(args["config"]) if "config" in args else None)
    folders = {model.id: models.prepare(model, settings.data, print) for model in settings.models}
    with open_registered(settings, folders) as database:
        return serve.app.build(app_config(settings, database.url, folders))
