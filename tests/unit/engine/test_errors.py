"""The error tree: drawn as it is, and able to cross a process."""

import inspect
import pickle
import re

import pytest

from engine import errors

TREE = {
    name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, Exception)
}


def test_the_drawn_tree_is_the_tree() -> None:
    drawn = re.findall(r"^ *(?:│   )*(?:├── |└── )?([A-Z]\w+)(?=  |$)", errors.__doc__ or "", re.MULTILINE)
    assert set(drawn) == set(TREE)
    assert all(issubclass(cls, errors.EngineError) for cls in TREE.values())


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidConfig("x is 1; 2 is allowed"),
        errors.InvalidParameter("top_p", 2.0, "<= 1"),
        errors.PromptTooLong(got=5, allowed=4),
        errors.TooLargeForPool(needed=5, allowed=4),
        errors.QueueFull(waiting=4, allowed=4),
        errors.DuplicateRequest("r"),
        errors.BadGrammar("response_format", "it is not JSON"),
        errors.GrammarTooComplex("response_format", "9 characters", "7 are"),
        errors.UnknownAdapter("sha256:b", ["sha256:a"]),
        errors.NoAdapterSlots("sha256:a"),
        errors.AdapterInUse("sha256:a", 2),
        errors.AdapterTooLarge("sha256:a", 64, 16),
        errors.EngineBusy(2),
        errors.GenerationFailed("r", "why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling_with_their_figures(error: errors.EngineError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_messages_name_the_value_met_and_the_value_allowed() -> None:
    assert str(errors.PromptTooLong(got=9, allowed=7)) == "prompt has 9 tokens; at most 7 are allowed"
    assert "need 9 KV blocks; the pool has 7" in str(errors.TooLargeForPool(needed=9, allowed=7))
    assert str(errors.InvalidParameter("top_p", 2.0, "<= 1")) == "top_p is 2.0; allowed: <= 1"
    assert "added: a, b" in str(errors.UnknownAdapter("c", ["b", "a"]))
    assert "added: none" in str(errors.UnknownAdapter("c", []))
