"""A store's URL says where it is, and nothing can be hidden in it."""

from pathlib import Path

import pytest

from lora.errors import InvalidStore
from lora.store import FileStore, S3Options, check_store, open_store
from lora.store.s3_store import S3Store


def test_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    store = open_store(folder.as_uri())
    assert isinstance(store, FileStore)
    assert store.url == folder.as_uri()
    store.check()
    assert store.list() == []
    assert not folder.exists()


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://my.bucket-1/a/b", "s3://my.bucket-1/a/b"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
    ],
)
def test_a_bucket(url: str, same: str) -> None:
    store = open_store(url, S3Options(region="us-east-1"))
    assert isinstance(store, S3Store)
    assert store.url == same


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/folder",
        "file:",
        "file://relative",
        "file://other-machine/folder",
        "file:///a/../b",
        "file:///a/%2e%2e/b",
        "file:///a?b",
        "file:///a%00b",
        "http://host/folder",
        "s3://",
        "s3:///prefix",
        "s3://Bucket",
        "s3://b",
        "s3://bucket//a",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://bucket/./a",
        "s3://bucket/a b",
        "s3://bucket/a%2fb",
        "s3://bucket/a?b=c",
        "s3://bucket/a#b",
        "s3://key:very-secret@bucket/a",
        "s3://bucket/a\nb",
    ],
)
def test_every_other_form_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidStore, match=r"^url of the adapter store is not valid, allowed: ") as met:
        check_store(url)
    assert "very-secret" not in str(met.value)


def test_options_of_a_server_need_a_server(tmp_path: Path) -> None:
    with pytest.raises(InvalidStore, match="s3://"):
        check_store(tmp_path.as_uri(), S3Options())


@pytest.mark.parametrize(
    "url",
    [
        "minio:9000",
        "ftp://host",
        "http://",
        "http://user:very-secret@host",
        "http://host:99999",
        "http://h/?a",
    ],
)
def test_an_endpoint_is_a_plain_http_url(url: str) -> None:
    with pytest.raises(InvalidStore, match="endpoint_url") as met:
        S3Options(endpoint_url=url)
    assert "very-secret" not in str(met.value)


def test_the_bucket_goes_into_the_path_except_on_aws() -> None:
    endpoint = "http://minio:9000"
    assert S3Options().style == "virtual"
    assert S3Options(endpoint_url=endpoint).style == "path"
    assert S3Options(endpoint_url=endpoint, addressing="virtual").style == "virtual"
