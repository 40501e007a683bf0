import time
from uuid import UUID

import pytest

from serve.ids import bare_id, uuid7


def test_an_id_is_a_uuid7_of_this_moment() -> None:
    before = time.time_ns() // 1_000_000
    made = UUID(uuid7())
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert before <= made.int >> 80 <= after


def test_ids_differ() -> None:
    assert len({uuid7() for _ in range(10_000)}) == 10_000


def test_the_id_of_a_completion_holds_the_requests_own() -> None:
    made = uuid7()
    assert bare_id(f"chatcmpl-{made}") == bare_id(f"cmpl-{made}") == bare_id(made.upper()) == made
    assert bare_id(f"resp_{made.replace('-', '')}") == made


def test_what_is_no_id_is_refused() -> None:
    with pytest.raises(ValueError, match="badly formed"):
        bare_id("chatcmpl-7")
