"""Settings: what wins over what, and one clear line for each mistake."""

from pathlib import Path

import pytest

from lora.store import S3Options
from noria.cluster import app_config
from noria.errors import SettingsError
from noria.settings import load


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "noria.toml"
    path.write_text(text)
    return path


def test_defaults_need_no_file() -> None:
    settings = load(environment={})
    assert [model.id for model in settings.models] == ["smollm2-135m"]
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8000)
    assert settings.data == Path.cwd() / ".noria"
    assert settings.store_url == (settings.data / "store").as_uri()


def test_environment_wins_over_file_and_command_line_over_both(tmp_path: Path) -> None:
    config = write(tmp_path, 'data = "a"\n[server]\nport = 1\nhost = "127.0.0.2"\nadmin_key = "k"\n')
    environment = {"NORIA_PORT": "2", "NORIA_DATA": "b", "NORIA_CONFIG": str(config)}
    settings = load(overrides={("server", "port"): 3, ("data",): None}, environment=environment)
    assert settings.server.port == 3
    assert settings.server.host == "127.0.0.2"
    assert settings.data == Path.cwd() / "b"


def test_model_words_replace_the_models_of_the_file(tmp_path: Path) -> None:
    config = write(tmp_path, '[[models]]\nid = "a"\nsource = "/a"\n')
    settings = load(config, models=("b=/x=y", "c=/c"), environment={})
    assert [(model.id, model.source) for model in settings.models] == [("b", "/x=y"), ("c", "/c")]


def test_a_model_may_make_vectors(tmp_path: Path) -> None:
    text = '[[models]]\nid = "a"\nsource = "/a"\ntask = "embed"\npooling = "cls"\nnormalize = false\n'
    settings = load(write(tmp_path, text), environment={})
    (model,) = app_config(settings, "postgresql://h/d", {"a": Path("/a")}).models
    assert (model.task, model.pooling, model.normalize) == ("embed", "cls", False)


def test_sizes_have_units(tmp_path: Path) -> None:
    config = write(tmp_path, '[[models]]\nid = "a"\nsource = "/a"\nkv_bytes = "512 MiB"\n')
    assert load(config, environment={}).models[0].kv_bytes == 512 << 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nport = 70000\n", ("server.port", "65535", "70000")),
        ("[server]\nprot = 8000\n", ("server.prot", "no setting has this name", "8000")),
        ('[database]\nurl = "junk"\n', ("database.url", "postgresql://", "'junk'")),
        ('[database]\nurl = "mysql://h/d"\n', ("database.url", "postgresql://", "mysql")),
        ('[database]\nurl = "postgresql://h:port/d"\n', ("database.url", "postgresql://", "h:port")),
        ('[[models]]\nid = "a"\nsource = "x"\nkv_bytes = "1 parsec"\n', ("kv_bytes", "1 parsec", "1GiB")),
        ('[[models]]\nid = "a"\nsource = "x"\n[[models]]\nid = "a"\nsource = "y"\n', ("'a'", "2 times")),
        ('[[endpoints]]\nname = "e"\nmodel = "zzz"\n', ("'zzz'", "smollm2-135m")),
        ('[server]\nhost = "0.0.0.0"\n', ("admin_key", "0.0.0.0")),
        ('[database]\nurl = "mysql://noria:very-secret@h/d"\n', ("database.url", "mysql://***@h/d")),
        ('[store]\nurl = "/folder"\n', ("store.url", "file:///folder", "s3://bucket/prefix")),
        ('[store]\nregion = "eu-1"\n', ("store.region", "s3://bucket/prefix")),
        ('[store]\nurl = "s3://b-1"\nendpoint_url = "minio"\n', ("store.endpoint_url", "http://host:port")),
        ('[store]\nurl = "s3://b-1"\naddressing = "dns"\n', ("store.addressing", "virtual", "dns")),
        ("models = []\n", ("at least one", "none")),
        ('[[models]]\nid = "a"\nsource = "x"\ntask = "rank"\n', ("task", "'embed'", "'rank'")),
        ('[[models]]\nid = "a"\nsource = "x"\npooling = "cls"\n', ("pooling", "'generate'", "'cls'")),
        ('[[models]]\nid = "a"\nsource = "x"\ntask = "embed"\npooling = "max"\n', ("pooling", "'max'")),
        (
            '[[models]]\nid = "a"\nsource = "x"\ntask = "embed"\nkv_bytes = "1GiB"\n',
            ("kv_bytes", "'a'", "'embed'"),
        ),
        ("server = 3\n", ("server", "3")),
        ("not toml", ("not valid TOML",)),
    ],
)
def test_a_mistake_is_told_with_its_place_and_value(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(write(tmp_path, text), environment={})
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_bad_environment_value_is_not_swallowed() -> None:
    with pytest.raises(SettingsError, match=r"server\.port.*'many'"):
        load(environment={"NORIA_PORT": "many"})


def test_a_wrong_value_is_told_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(write(tmp_path, '[[models]]\nid = "a"\nsource = "x"\nkv_bytes = "lots"\n'), environment={})
    assert str(caught.value).count("'lots'") == 1
    assert "Value error" not in str(caught.value)


def test_the_url_of_a_socket_is_a_database_url() -> None:
    url = "postgresql://postgres@/noria?host=%2Ftmp%2Fx&port=5432"
    assert load(environment={"NORIA_DATABASE_URL": url}).database.url == url


def test_a_missing_file_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml does not exist"):
        load(tmp_path / "nowhere.toml", environment={})


@pytest.mark.parametrize("word", ["", "a", "=x", "a="])
def test_a_model_word_needs_both_sides(word: str) -> None:
    with pytest.raises(SettingsError, match="ID=SOURCE"):
        load(models=(word,), environment={})


def test_a_store_in_a_bucket_is_told_how_to_speak_to_its_server(tmp_path: Path) -> None:
    lines = [
        "[store]",
        'url = "s3://noria-adapters/prod"',
        'endpoint_url = "http://minio:9000"',
        "checksums = false",
    ]
    settings = load(write(tmp_path, "\n".join(lines)), environment={})
    assert settings.store_url == "s3://noria-adapters/prod"
    assert settings.s3 == S3Options(endpoint_url="http://minio:9000", checksums=False)
    assert load(environment={}).s3 is None
