"""The canonical text and its hash are the same in SQL and in Python."""

from __future__ import annotations

import random
from typing import Any

from psycopg.types.json import Jsonb

from db.canonical import canonical_json, prompt_hash
from db.database import Database

LETTERS = 'aZ 09"\\/\b\f\n\r\t\x01\x1f\x7fé\u2028漢🙂'


def random_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(8 if depth else 6)
    match kind:
        case 0:
            return None
        case 1:
            return chance.random() < 0.5
        case 2:
            return chance.randrange(-(10**12), 10**12)
        case 3 | 4 | 5:
            return "".join(chance.choices(LETTERS, k=chance.randrange(12)))
        case 6:
            return [random_value(chance, depth - 1) for _ in range(chance.randrange(5))]
        case _:
            keys = (
                "".join(chance.choices(LETTERS, k=chance.randrange(4))) for _ in range(chance.randrange(5))
            )
            return {key: random_value(chance, depth - 1) for key in keys}


def test_random_values_agree(db: Database) -> None:
    chance = random.Random(3)
    with db.transaction() as connection:
        for _ in range(400):
            value = [random_value(chance, 3)]
            row = connection.execute(
                b"SELECT obs.canonical(%(v)s) AS text, obs.prompt_hash(%(v)s) AS hash", {"v": Jsonb(value)}
            ).fetchone()
            assert row == {"text": canonical_json(value), "hash": prompt_hash(value)}
