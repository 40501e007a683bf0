"""Bounds on what an adapter folder may cost before anything in it is believed."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds, all inclusive; sizes in bytes."""

    config_bytes: int = 1 << 20
    header_bytes: int = 8 << 20
    weights_bytes: int = 8 << 30
    tensors: int = 20_000
    rank: int = 1024
    template_bytes: int = 1 << 20
    tokenizer_config_bytes: int = 16 << 20


DEFAULT_LIMITS = Limits()
