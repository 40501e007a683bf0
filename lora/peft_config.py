"""adapter_config.json: the fields that change what an adapter computes, parsed and checked.

Every field of the file must be known. One that is applied is parsed into AdapterConfig; one that cannot
change the answers is passed over; any other must hold its neutral value or the adapter is refused by that
field's name, so a feature that a later PEFT invents is never dropped silently.
Source: peft 0.21, LoraConfig and tuners_utils.check_target_module_exists.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from lora.config_fields import (
    check_features,
    read_bool,
    read_choice,
    read_layers,
    read_names,
    read_number,
    read_optional_text,
    read_pattern_table,
    read_rank,
    read_target,
    read_token_ids,
    read_token_rows,
)
from lora.errors import InvalidConfig, UnsupportedFeature
from lora.file_access import read_json_object
from lora.limits import Limits
from lora.patterns import compile_layers, compile_suffix

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
ALL_LINEAR = "all-linear"
BIASES = ("none", "all", "lora_only")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """The function of an adapter apart from its tensors. Module names in it are the trained model's own.

    `target_modules` and `exclude_modules` are sorted name suffixes, or one regular expression matched in
    full, or (targets only) "all-linear". `rank_pattern` and `alpha_pattern` keep the file's order: the first
    key that matches wins. `bias` is "none", "all" or "lora_only". `token_rows` is trainable_token_indices:
    module suffix -> token ids in the order of the file's rows, "" for the token table. `invocation` is
    alora_invocation_tokens, empty where the adapter holds for every token.
    """

    r: int
    lora_alpha: float
    use_rslora: bool
    rank_pattern: tuple[tuple[str, int], ...]
    alpha_pattern: tuple[tuple[str, float], ...]
    target_modules: str | tuple[str, ...]
    exclude_modules: str | tuple[str, ...]
    layers_to_transform: tuple[int, ...] | None
    layers_pattern: tuple[str, ...]
    use_dora: bool
    bias: str
    lora_bias: bool
    modules_to_save: tuple[str, ...]
    token_rows: tuple[tuple[str, tuple[int, ...]], ...]
    invocation: tuple[int, ...]
    ensure_weight_tying: bool
    base_model_name_or_path: str | None
    revision: str | None

    def rank_of(self, module: str) -> int:
        """Rank of a module."""
        return _first_match("rank_pattern", self.rank_pattern, module, self.r)

    def scale_of(self, module: str) -> float:
        """Factor of B @ A for a module: alpha / r, or alpha / sqrt(r) with use_rslora."""
        rank = self.rank_of(module)
        alpha = _first_match("alpha_pattern", self.alpha_pattern, module, self.lora_alpha)
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    @property
    def max_rank(self) -> int:
        """The largest rank any module can have."""
        return max([self.r, *(rank for _, rank in self.rank_pattern)])

    def canonical(self) -> dict[str, Any]:
        """As plain JSON data: equal for configs that compute the same from the same tensors."""
        return asdict(self)


def parse_config(folder: Path, limits: Limits) -> AdapterConfig:
    """Read adapter_config.json of a folder.

    Raises AdapterNotFound, InvalidConfig, UnsupportedFeature or LimitExceeded.
    """
    fields = read_json_object(folder / CONFIG_FILE, limits.config_bytes)
    check_features(fields)
    config = AdapterConfig(
        r=read_rank("r", fields.get("r"), limits.rank),
        lora_alpha=read_number("lora_alpha", fields.get("lora_alpha")),
        use_rslora=read_bool("use_rslora", fields.get("use_rslora")),
        rank_pattern=read_pattern_table(
            "rank_pattern",
            fields.get("rank_pattern"),
            lambda name, value: read_rank(name, value, limits.rank),
        ),
        alpha_pattern=read_pattern_table("alpha_pattern", fields.get("alpha_pattern"), read_number),
        target_modules=read_target(fields.get("target_modules"), ALL_LINEAR),
        exclude_modules=read_names("exclude_modules", fields.get("exclude_modules"), regex_allowed=True),
        layers_to_transform=read_layers(fields.get("layers_to_transform")),
        layers_pattern=_layers_pattern(fields.get("layers_pattern")),
        use_dora=read_bool("use_dora", fields.get("use_dora")),
        bias=read_choice("bias", fields.get("bias"), BIASES),
        lora_bias=read_bool("lora_bias", fields.get("lora_bias")),
        modules_to_save=_names("modules_to_save", fields.get("modules_to_save")),
        token_rows=read_token_rows("trainable_token_indices", fields.get("trainable_token_indices")),
        invocation=read_token_ids("alora_invocation_tokens", fields.get("alora_invocation_tokens")),
        ensure_weight_tying=read_bool("ensure_weight_tying", fields.get("ensure_weight_tying")),
        base_model_name_or_path=read_optional_text(
            "base_model_name_or_path", fields.get("base_model_name_or_path")
        ),
        revision=read_optional_text("revision", fields.get("revision")),
    )
    _check_layers(config)
    _check_together(config)
    return config


def _layers_pattern(value: object) -> tuple[str, ...]:
    names = _names("layers_pattern", [value] if isinstance(value, str) else value)
    for name in names:
        compile_layers(name)
    return names


def _names(field: str, value: object) -> tuple[str, ...]:
    names = read_names(field, value)
    return names if isinstance(names, tuple) else (names,)


def _check_layers(config: AdapterConfig) -> None:
    if isinstance(config.target_modules, str) and (config.layers_to_transform or config.layers_pattern):
        raise InvalidConfig(
            "layers_to_transform", config.layers_to_transform, "only with a list of target_modules"
        )
    if config.layers_pattern and config.layers_to_transform is None:
        raise InvalidConfig("layers_pattern", config.layers_pattern, "only together with layers_to_transform")


def _check_together(config: AdapterConfig) -> None:
    """PEFT itself has no such pairs, or lets the second hold for tokens before the invocation too."""
    pairs = {
        "lora_bias together with use_dora": config.lora_bias and config.use_dora,
        "use_dora together with alora_invocation_tokens": config.invocation and config.use_dora,
        "bias together with alora_invocation_tokens": config.invocation and config.bias != "none",
        "modules_to_save together with alora_invocation_tokens": config.invocation and config.modules_to_save,
        "trainable_token_indices together with alora_invocation_tokens": (
            config.invocation and config.token_rows
        ),
    }
    for feature, asked in pairs.items():
        if asked:
            raise UnsupportedFeature(feature, asked)


def _first_match(field: str, table: tuple[tuple[str, _T], ...], module: str, default: _T) -> _T:
    for key, value in table:
        if compile_suffix(field, key).match(module):
            return value
    return default
