import pytest

from serve.caller import read_caller
from serve.errors import InvalidField
from serve.ids import uuid7


def test_headers_are_read() -> None:
    parent = uuid7()
    caller = read_caller(
        {
            "x-noria-user": "u1",
            "x-noria-conversation": "c1",
            "x-noria-parent": f"chatcmpl-{parent}",
            "x-noria-source": "eval",
        },
        "default",
    )
    assert (caller.user, caller.conversation, caller.parent) == ("u1", "c1", parent)
    assert (caller.source, caller.tenant) == ("eval", "default")


def test_without_headers_it_is_traffic_of_nobody() -> None:
    caller = read_caller({"x-noria-user": ""}, "default")
    assert (caller.user, caller.parent, caller.source) == (None, None, "traffic")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-noria-source", "training"),
        ("x-noria-source", ""),
        ("x-noria-parent", "7"),
        ("x-noria-user", "u" * 513),
    ],
)
def test_odd_headers_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_caller({name: value}, "default")
    assert caught.value.param == name


def test_the_header_names_the_parent_before_the_metadata() -> None:
    first, second = uuid7(), uuid7()
    caller = read_caller({"x-noria-parent": first}, "default")
    assert caller.with_parent(second, "metadata.parent_request_id").parent == first
    assert read_caller({}, "default").with_parent(second, "x").parent == second
