from types import ModuleType

import pytest

import db.errors
import engine.errors
import lora.errors
import serve.error_table
import serve.errors
from serve.error_table import answer_for, row_for
from serve.errors import RemoteError

ROOTS = {
    db.errors: db.errors.DbError,
    engine.errors: engine.errors.EngineError,
    lora.errors: lora.errors.LoraError,
    serve.errors: serve.errors.ServeError,
}


def leaves(module: ModuleType) -> list[type[Exception]]:
    found = [
        item
        for item in vars(module).values()
        if isinstance(item, type) and issubclass(item, ROOTS[module]) and item.__module__ == module.__name__
    ]
    return [kind for kind in found if not any(kind in other.__mro__[1:] for other in found)]


@pytest.mark.parametrize("module", list(ROOTS))
def test_every_error_has_a_row(module: ModuleType) -> None:
    unmapped = [kind.__name__ for kind in leaves(module) if row_for(kind) is None]
    assert unmapped in ([], ["RemoteError"])


def test_rows_carry_a_status_and_a_code_of_their_own() -> None:
    for row in serve.error_table.TABLE.values():
        assert 400 <= row.status < 600
        assert row.code
        assert row.code == row.code.lower()
        assert row.shown or row.status == 500


def test_the_answer_has_openais_shape() -> None:
    answer = answer_for(serve.errors.UnknownModel("nobody"))
    assert answer.status == 404
    assert answer.body == {
        "error": {
            "message": "The model `nobody` does not exist.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }


def test_an_unknown_exception_keeps_its_text_to_itself() -> None:
    answer = answer_for(RuntimeError("password=secret"))
    assert answer.status == 500
    assert "secret" not in str(answer.body)


def test_a_remote_error_is_known_by_its_name() -> None:
    answer = answer_for(RemoteError("QueueFull", "1024 requests are waiting; at most 1024 may"))
    assert (answer.status, answer.body["error"]["code"]) == (429, "queue_full")
    assert answer.headers == {"retry-after": "1"}


def test_a_subclass_below_the_table_is_known_by_its_name_too() -> None:
    answer = answer_for(RemoteError("WrongShape", "tensor x has shape [1], expected [2]"))
    assert (answer.status, answer.body["error"]["code"]) == (400, "wrong_shape")


def test_an_unknown_remote_error_is_internal() -> None:
    answer = answer_for(RemoteError("KeyError", "'secret'"))
    assert answer.status == 500
    assert "secret" not in str(answer.body)


def test_too_long_a_prompt_names_both_numbers() -> None:
    answer = answer_for(serve.errors.ContextTooLong(5000, 2048, "messages"))
    assert answer.status == 400
    assert "5000" in answer.body["error"]["message"]
    assert "2048" in answer.body["error"]["message"]
    assert answer.body["error"]["param"] == "messages"
