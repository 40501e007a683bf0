"""The border with the driver: each of its errors has one of ours, or is a fault of the code."""

from __future__ import annotations

from pathlib import Path

import psycopg
import psycopg_pool
import pytest
from psycopg import errors as pg

import db
from db import errors


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (pg.UniqueViolation, errors.Conflict),
        (pg.ForeignKeyViolation, errors.NotFound),
        (pg.CheckViolation, errors.InvalidValue),
        (pg.NotNullViolation, errors.InvalidValue),
        (pg.NumericValueOutOfRange, errors.InvalidValue),
        (pg.InvalidTextRepresentation, errors.InvalidValue),
        (pg.ProgramLimitExceeded, errors.InvalidValue),
        (pg.DeadlockDetected, errors.Conflict),
        (pg.LockNotAvailable, errors.Conflict),
        (pg.SerializationFailure, errors.Conflict),
        (pg.AdminShutdown, errors.DatabaseAway),
        (psycopg.OperationalError, errors.DatabaseAway),
        (psycopg_pool.PoolTimeout, errors.DatabaseAway),
        (psycopg_pool.PoolClosed, errors.DatabaseAway),
    ],
)
def test_translation(theirs: type[psycopg.Error], ours: type[errors.DbError]) -> None:
    assert type(errors.translate(theirs("what happened"))) is ours


@pytest.mark.parametrize("theirs", [pg.SyntaxError, pg.UndefinedTable, psycopg.ProgrammingError])
def test_faults_of_the_code_are_not_hidden(theirs: type[psycopg.Error]) -> None:
    assert errors.translate(theirs("what happened")) is None


def test_every_state_that_the_migrations_raise_is_known() -> None:
    raised = {
        state
        for body in (Path(db.__file__).parent / "migrations" / "versions").glob("*.sql")
        for state in ("NR001", "NR002", "NR003", "NR004", "NR005", "NR006", "NR007")
        if state in body.read_text()
    }
    known = {
        errors.ILLEGAL_TRANSITION, errors.GATE_CLOSED, errors.NOT_FOUND, errors.FROZEN, errors.SHARE_TAKEN,
    }  # fmt: skip
    assert raised == known


def test_the_tree_on_top_names_every_error() -> None:
    own = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in own)
