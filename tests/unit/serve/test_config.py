import pickle
from pathlib import Path

import pytest

from engine.config import EngineConfig
from serve.config import AppConfig, ModelConfig


def test_the_settings_travel_to_other_processes() -> None:
    model = ModelConfig(name="m", folder=Path("/m"), engine=EngineConfig(model=Path("/m")))
    config = AppConfig(
        models=(model,),
        database_url="postgresql://x",
        store_url="file:///s",
        cache_root=Path("/c"),
        spool_dir=Path("/p"),
    )
    assert pickle.loads(pickle.dumps(config)) == config
    assert config.model("m") is model
    with pytest.raises(KeyError):
        config.model("n")


def test_threads_of_a_replica_do_not_spin_against_their_neighbours() -> None:
    model = ModelConfig(name="m", folder=Path("/m"), engine=EngineConfig(model=Path("/m")))
    assert model.env["OMP_WAIT_POLICY"] == "PASSIVE"
