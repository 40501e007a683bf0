"""Which modules a config means, by the name that the model that was trained gives them.

Source: peft 0.21, tuners_utils.check_target_module_exists, utils.other._set_trainable and
set_additional_trainable_modules.
"""

import re
from collections.abc import Collection

from lora.patterns import compile_layers, compile_pattern
from lora.peft_config import ALL_LINEAR, AdapterConfig
from lora.targets import HEAD

_LAYER_NUMBER = re.compile(r".*?\.[^.]*\.(?P<number>\d+)\.")


def is_targeted(config: AdapterConfig, module: str, *, table: bool = False) -> bool:
    """Whether PEFT would put LoRA on a linear layer, or with `table` on an embedding, of this name."""
    if _is_excluded(config, module):
        return False
    if config.target_modules == ALL_LINEAR:
        return not table and module.rpartition(".")[2] != HEAD
    if isinstance(config.target_modules, str):
        return compile_pattern("target_modules", config.target_modules).fullmatch(module) is not None
    if module in config.target_modules:
        return True
    return _ends_with_any(module, config.target_modules) and _in_layers(config, module)


def is_saved(config: AdapterConfig, module: str) -> bool:
    """Whether modules_to_save names the module or one around it. PEFT compares ends of names, dot or not."""
    parts = module.split(".")
    holders = [".".join(parts[: count + 1]) for count in range(len(parts))]
    return any(holder.endswith(name) for holder in holders for name in config.modules_to_save)


def token_ids_of(config: AdapterConfig, module: str, *, table: bool) -> tuple[int, ...]:
    """The ids that trainable_token_indices gives for a module of this name, () for none.

    table: this is the token table, which a plain list of ids means.
    """
    for name, ids in config.token_rows:
        if table if not name else module.endswith(name):
            return ids
    return ()


def _is_excluded(config: AdapterConfig, module: str) -> bool:
    if any(f".{name}." in f".{module}." for name in config.modules_to_save):
        return True
    if isinstance(config.exclude_modules, str):
        return compile_pattern("exclude_modules", config.exclude_modules).fullmatch(module) is not None
    return module in config.exclude_modules or _ends_with_any(module, config.exclude_modules)


def _ends_with_any(module: str, names: Collection[str]) -> bool:
    return any(module.endswith(f".{name}") for name in names)


def _in_layers(config: AdapterConfig, module: str) -> bool:
    """layers_to_transform looks at the first number after layers_pattern, or after any name without one."""
    if config.layers_to_transform is None:
        return True
    for name in config.layers_pattern:
        found = compile_layers(name).match(module)
        if found:
            return int(found["number"]) in config.layers_to_transform
    if config.layers_pattern:
        return False
    found = _LAYER_NUMBER.match(module)
    return found is not None and int(found["number"]) in config.layers_to_transform
