"""The sticky split in SQL: golden values, exact shares, users who stay where they are."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from db import promotion
from db.database import Database
from db.rows import AdapterRow

VECTORS = Path(__file__).parents[1] / "data" / "bucket_vectors.json"


def test_golden_vectors(db: Database) -> None:
    vectors = json.loads(VECTORS.read_text())["vectors"]
    with db.transaction() as connection:
        for vector in vectors:
            row = connection.execute(
                b"SELECT serve.bucket(%(endpoint)s, %(experiment)s, %(key)s) AS bucket", vector
            ).fetchone()
            assert row == {"bucket": vector["bucket"]}, vector


def test_ten_thousand_random_keys_agree_with_the_definition(db: Database) -> None:
    chance = random.Random(1)
    keys = ["".join(chance.choices("aZ09é漢🙂 \t|:/", k=chance.randrange(40))) for _ in range(10_000)]
    with db.transaction() as connection:
        found = connection.execute(
            b"SELECT serve.bucket('e', 'x', key) AS bucket"
            b" FROM unnest(%s::text[]) WITH ORDINALITY k (key, place)"
            b" ORDER BY place",
            (keys,),
        ).fetchall()
    expected = [int(hashlib.sha256(f"e\x1fx\x1f{key}".encode()).hexdigest()[:15], 16) % 10000 for key in keys]
    assert [row["bucket"] for row in found] == expected


@pytest.mark.parametrize("pct", [0, 0.5, 5, 50, 100])
def test_shares_over_fifty_thousand_users(
    db: Database, add_adapter: Callable[..., AdapterRow], pct: float
) -> None:
    add_adapter("v1")
    promotion.start_canary(db, "v1", pct)
    with db.transaction() as connection:
        row = connection.execute(
            b"SELECT count(*) FILTER (WHERE b < a.traffic_pct * 100 + a.canary_start) * 0.002 AS share"
            b" FROM serve.adapter a, generate_series(1, 50000) i,"
            b" LATERAL (SELECT serve.bucket('assistant', 'v1', 'user-' || i) AS b) bucket"
        ).fetchone()
        dealt = connection.execute(
            b"SELECT count(*) AS n FROM generate_series(1, 1000) i, serve.assign('assistant', 'user-' || i) a"
            b" WHERE a.variant = 'canary' AND a.adapter_id = 'v1'"
        ).fetchone()
    assert row is not None
    assert dealt is not None
    share = float(row["share"])
    assert share == pct if pct in (0, 100) else abs(share - pct) < 0.7
    assert abs(dealt["n"] / 10 - pct) < 5
