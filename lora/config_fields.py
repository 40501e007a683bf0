"""Reading single fields of adapter_config.json, and the table of fields that are not served."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from lora.errors import InvalidConfig, LimitExceeded, RankTooLarge, UnsupportedFeature
from lora.patterns import compile_pattern, compile_suffix

_T = TypeVar("_T")
_MOST_NAMES = 4096

# Applied: parsed into AdapterConfig.
_APPLIED = {
    "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "target_modules", "exclude_modules",
    "layers_to_transform", "layers_pattern", "base_model_name_or_path", "revision",
    "bias", "lora_bias", "use_dora", "modules_to_save", "trainable_token_indices", "alora_invocation_tokens",
    "ensure_weight_tying",
}  # fmt: skip

# Without effect on a saved adapter's answers: about training, about the library, or read only by a feature
# that has a switch of its own among the refused ones.
_WITHOUT_EFFECT = {
    "task_type", "auto_mapping", "peft_version", "inference_mode", "lora_dropout", "eva_config",
    "velora_config", "megatron_core", "qalora_group_size", "loftq_config", "corda_config", "lora_ga_config",
    "runtime_config", "fan_in_fan_out",
}  # fmt: skip

# These leave the base weights alone. The others (pissa, olora, loftq, corda, lora_ga, ...) subtract something
# from the base before training, so their A and B do not fit the base that is served.
_SAFE_INITS: tuple[object, ...] = (None, True, False, "gaussian", "eva", "orthogonal", "mica")

_INIT_ADVICE = "save it with path_initial_model_for_weight_conversion, or train with true"


def check_features(fields: Mapping[str, Any]) -> None:
    """Raise InvalidConfig unless this is LoRA, UnsupportedFeature for what is neither applied nor neutral."""
    if fields.get("peft_type") != "LORA":
        raise InvalidConfig("peft_type", fields.get("peft_type"), "'LORA'")
    init = fields.get("init_lora_weights")
    if not any(init is safe or (isinstance(init, str) and init == safe) for safe in _SAFE_INITS):
        raise UnsupportedFeature("init_lora_weights", init, _INIT_ADVICE)
    for name in sorted(fields.keys() - _APPLIED - _WITHOUT_EFFECT - {"peft_type", "init_lora_weights"}):
        if not _is_neutral(fields[name]):
            raise UnsupportedFeature(name, fields[name])


def _is_neutral(value: object) -> bool:
    return value is None or value is False or (isinstance(value, list | dict | str) and not value)


def read_rank(field: str, value: object, limit: int) -> int:
    """A whole number from 1 to `limit`."""
    if type(value) is not int or value < 1:
        raise InvalidConfig(field, value, f"a whole number from 1 to {limit}")
    if value > limit:
        raise RankTooLarge(f"rank ({field})", value, limit)
    return value


def read_number(field: str, value: object) -> float:
    """A finite number; whole and fractional spellings of one value are equal."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise InvalidConfig(field, value, "a finite number")
    return float(value)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def read_bool(field: str, value: object) -> bool:
    """true or false; null counts as false."""
    if value is not None and not isinstance(value, bool):
        raise InvalidConfig(field, value, "true or false")
    return bool(value)


def read_optional_text(field: str, value: object) -> str | None:
    """A text, or None for null and the empty text."""
    if value is not None and not isinstance(value, str):
        raise InvalidConfig(field, value, "a text or null")
    return value or None


def read_target(value: object, all_linear: str) -> str | tuple[str, ...]:
    """target_modules: names, a regular expression, or `all_linear` in any case."""
    if not value:
        raise InvalidConfig("target_modules", value, "a list of names, a regular expression, or 'all-linear'")
    if isinstance(value, str) and value.lower() == all_linear:
        return all_linear
    return read_names("target_modules", value, regex_allowed=True)


def read_names(field: str, value: object, *, regex_allowed: bool = False) -> str | tuple[str, ...]:
    """A list of names, sorted and without repeats (null: empty), or a regular expression where allowed."""
    if isinstance(value, str) and regex_allowed:
        return compile_pattern(field, value).pattern if value else ()
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise InvalidConfig(
            field, value, "a list of names" + (" or a regular expression" if regex_allowed else "")
        )
    _check_count(field, len(value))
    return tuple(sorted(set(value)))


def _check_count(field: str, count: int) -> None:
    """Each entry is compared with each module."""
    if count > _MOST_NAMES:
        raise LimitExceeded(f"number of entries of {field}", count, _MOST_NAMES)


def read_layers(value: object) -> tuple[int, ...] | None:
    """layers_to_transform: layer numbers, one number, or None for every layer (null and the empty list)."""
    layers = [value] if type(value) is int else value
    if layers is None:
        return None
    if not isinstance(layers, list) or not all(type(layer) is int and layer >= 0 for layer in layers):
        raise InvalidConfig("layers_to_transform", value, "a whole number from 0, a list of them, or null")
    return tuple(sorted(set(layers))) or None


def read_pattern_table(
    field: str, value: object, read: Callable[[str, object], _T]
) -> tuple[tuple[str, _T], ...]:
    """rank_pattern and alpha_pattern: regular expression -> value, in the file's order."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise InvalidConfig(field, value, "an object from module pattern to number")
    _check_count(field, len(value))
    for key in value:
        compile_suffix(field, key)
    return tuple((key, read(f"{field}[{key!r}]", entry)) for key, entry in value.items())


def read_choice(field: str, value: object, choices: Sequence[str]) -> str:
    """One of `choices`; null counts as the first."""
    if value is None:
        return choices[0]
    if not isinstance(value, str) or value not in choices:
        raise InvalidConfig(field, value, ", ".join(map(repr, choices)))
    return value


def read_token_ids(field: str, value: object) -> tuple[int, ...]:
    """Token ids in the file's order (null: none)."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(token) is int and token >= 0 for token in value):
        raise InvalidConfig(field, value, "a list of token ids, whole numbers from 0")
    return tuple(value)


def read_token_rows(field: str, value: object) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """trainable_token_indices: module suffix -> its token ids, each once; "" stands for the token table."""
    tables = value if isinstance(value, dict) else {"": value}
    rows = {name: read_token_ids(field, ids) for name, ids in tables.items()}
    for ids in rows.values():
        if len(set(ids)) != len(ids):
            raise InvalidConfig(field, value, "each token id once")
    return tuple((name, ids) for name, ids in sorted(rows.items()) if ids)
