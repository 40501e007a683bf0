"""The native step tells where its time goes while somebody asks, and only then."""

from collections.abc import Callable
from ctypes import c_int64

from engine.native.library import KINDS
from tests.unit.engine.conftest import TinyModel
from tests.unit.engine.native_models import make_rows, native


def test_every_kind_of_work_takes_time_while_it_is_watched(tiny: Callable[[str], TinyModel]) -> None:
    model = native(tiny("llama").folder)
    spent, (row,) = (c_int64 * len(KINDS))(), make_rows([20], 128, seed=1)
    model.scores((row.span(0, 10),))
    assert sum(spent) == 0
    model._library.noria_watch(model._handle, spent)
    model.scores((row.span(10, 5),))
    assert all(nanoseconds > 0 for nanoseconds in spent)
    model._library.noria_watch(model._handle, None)
    before = list(spent)
    model.scores((row.span(15, 5),))
    assert list(spent) == before
