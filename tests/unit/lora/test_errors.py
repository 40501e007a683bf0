"""Errors cross process borders, so each must come back from a pickle as it went in."""

import pickle
from pathlib import Path

import pytest

from lora import errors

SAMPLES = [
    errors.AdapterPathRefused("../x"),
    errors.AdapterNotFound("x", "adapter_config.json"),
    errors.UnreadableFile("adapter_config.json", "Permission denied"),
    errors.InvalidConfig("r", 0, "more"),
    errors.InvalidChatTemplate("chat_template.jinja", "is empty"),
    errors.UnsupportedFeature("use_dora", True),
    errors.InvalidWeights("truncated", ["a", "b"]),
    errors.NotFinite("a", 3),
    errors.LimitExceeded("number of tensors", 9, 8),
    errors.RankTooLarge("adapter rank", 9, 8),
    errors.WrongBase(None, ["tiny"]),
    errors.UnmatchedTensors("none", [f"t{n}" for n in range(20)], 0),
    errors.MissingTensors(["m"]),
    errors.WrongShape("t", (1, 2), (3, 4)),
    errors.WrongVocabulary("t", 70, 64),
    errors.OutsideVocabulary("trainable_token_indices", 64, 64),
    errors.BaseLacksTensor("model.norm.weight"),
    errors.IdenticalToBase("sha256:x", 3),
    errors.SelfCheckFailed("it took more than 600 s"),
    errors.InvalidStore("url", "file:///folder"),
    errors.StoreUnavailable("EndpointConnectionError"),
    errors.InvalidDigest("x"),
    errors.NotInStore("sha256:x"),
    errors.DamagedCopy("sha256:x", "sha256:y"),
    errors.InvalidKey("../x"),
    errors.NoObject("files/x"),
    errors.DamagedObject("files/x", "sha256:x", "sha256:y"),
    errors.AdapterOverBudget("sha256:0", 2, 1),
    errors.PinsFillBudget("sha256:0", 2, 1, 4),
    errors.StopsUnusable(Path("stops.json"), "damaged"),
    errors.ResidencyClosed(),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: errors.LoraError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_concrete_error_is_sampled_and_drawn() -> None:
    leaves = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.LoraError) and not kind.__subclasses__()
    }
    assert leaves == {type(sample) for sample in SAMPLES}
    assert errors.__doc__ is not None
    assert all(kind.__name__ in errors.__doc__ for kind in leaves)


def test_a_long_list_of_keys_is_cut_in_the_message_only() -> None:
    error = errors.UnmatchedTensors("none", [f"t{n}" for n in range(20)], 0)
    assert str(error).endswith("t6, t7 and 12 more")
    assert len(error.keys) == 20
