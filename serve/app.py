"""The serving app as a whole: built for Ray Serve, deployed on the cluster this process is connected to.

Door (gateways)  ->  EngineReplica of each base model      over the data plane
     both        ->  Directory                             over Ray Serve handles, every two seconds
"""

import logging
import secrets
import socket
import time
import urllib.error
import urllib.request
from typing import Any

import ray
import ray.serve

from serve.config import AppConfig, ModelConfig
from serve.errors import NotHealthy, PortTaken

APP_NAME = "noria"

_COMMON: dict[str, Any] = {
    "ray_actor_options": {"num_cpus": 0},
    # Soon enough to notice a killed process within about a second.
    "health_check_period_s": 1.0,
    "health_check_timeout_s": 30.0,
    "graceful_shutdown_wait_loop_s": 0.1,
    # Otherwise every call of the directory writes a line.
    "logging_config": {"log_level": "INFO", "enable_access_log": False},
}


def build(config: AppConfig) -> ray.serve.Application:
    """The application; Ray Serve's HTTP proxies are not part of it and may stay off."""
    # Imported here: the drivers that only build an app need neither torch nor the HTTP stack at import.
    from serve.directory import Directory
    from serve.door import Door
    from serve.replica import EngineReplica

    token = secrets.token_hex(32)
    directory = _deployment(Directory, "Directory", max_ongoing_requests=1000).bind()
    replicas = [_replica(EngineReplica, config, model, token, directory) for model in config.models]
    gateway = _deployment(
        Door,
        "Gateway",
        num_replicas=config.gateways,
        graceful_shutdown_timeout_s=config.drain_s + 15.0,
    )
    return gateway.bind(config, token, directory, replicas)


def deploy(config: AppConfig, *, timeout_s: float = 300.0) -> None:
    """Run the app and return once it is healthy; ray.init comes first. Raises PortTaken or NotHealthy."""
    _check_port(config.host, config.port)
    # Serve's own account of starting up speaks to its developers, not to whoever starts this app.
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    ray.serve.start(proxy_location="Disabled")
    ray.serve.run(build(config), name=APP_NAME, route_prefix=None)
    _wait_healthy(config, timeout_s)


def shutdown() -> None:
    """Stop the app: streams drain for a few seconds, the record is flushed. Ray and Serve itself go on."""
    ray.serve.delete(APP_NAME)


def _replica(kind: Any, config: AppConfig, model: ModelConfig, token: str, directory: Any) -> Any:
    options = {
        "num_cpus": model.num_cpus,
        "num_gpus": model.num_gpus,
        "runtime_env": {"env_vars": dict(model.env)},
    }
    deployment = _deployment(
        kind,
        f"Engine-{model.name}".replace("#", "_"),
        num_replicas=model.replicas,
        ray_actor_options=options,
        graceful_shutdown_timeout_s=config.drain_s + 15.0,
    )
    return deployment.bind(config, model.name, token, directory)


def _deployment(kind: Any, name: str, **options: Any) -> Any:
    return ray.serve.deployment(kind, name=name).options(**(_COMMON | options))


def _check_port(host: str, port: int) -> None:
    """SO_REUSEPORT would let two instances share a port in silence. Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTaken(host, port) from error


def _wait_healthy(config: AppConfig, timeout_s: float) -> None:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(config.host, config.host)
    url, deadline, last = f"http://{host}:{config.port}/health", time.monotonic() + timeout_s, "no answer yet"
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5.0) as answer:
                if answer.status == 200:
                    return
        except urllib.error.HTTPError as error:
            last = error.read().decode(errors="replace")
        except OSError as error:
            last = str(error)
        time.sleep(0.1)
    raise NotHealthy(f"{url} did not become healthy in {timeout_s:g} s; last answer: {last}")
