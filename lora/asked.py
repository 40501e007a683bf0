"""Which tensors a config asks for, module by module of a base model, and what of it is not served."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from lora.errors import OutsideVocabulary, UnsupportedFeature
from lora.peft_config import AdapterConfig
from lora.targeting import is_saved, is_targeted, token_ids_of
from lora.targets import HEAD, BaseTargets
from lora.tensor_names import Part


@dataclass(frozen=True, slots=True)
class Asked:
    """By module of the base: parts that must be there, and those that may.

    token_ids: of the rows in Part.TOKENS. tokens_in_head: as in MatchReport.
    """

    required: Mapping[str, frozenset[Part]]
    allowed: Mapping[str, frozenset[Part]]
    token_ids: Mapping[str, tuple[int, ...]]
    tokens_in_head: bool


def asked_tensors(config: AdapterConfig, targets: BaseTargets, name_of: Callable[[str], str]) -> Asked:
    """What a file of this config holds for this base. name_of: the adapter's name of a module of the base.

    Raises UnsupportedFeature for what could be trained and is not served, OutsideVocabulary.
    """
    required = {module: set[Part]() for module in (*targets.linear, *targets.norms, targets.embedding)}
    for module, parts in required.items():
        name, table = name_of(module), module == targets.embedding
        if module not in targets.norms and is_targeted(config, name, table=table):
            parts |= _lora_parts(config, module, table)
            if config.bias == "lora_only" and module in targets.biases:
                parts.add(Part.BIAS)
        if config.bias == "all" and module in targets.biases:
            parts.add(Part.BIAS)
        if is_saved(config, name):
            parts |= _saved_parts(targets, module, name)
    shared = _share_rows(config, targets, name_of)
    rows = _token_rows(config, targets, name_of, shared)
    for module in rows:
        required[module].add(Part.TOKENS)
    _tie_changes(config, targets, required)
    _refuse_mixtures(config, targets, required, shared)
    return Asked(
        required={module: frozenset(parts) for module, parts in required.items()},
        allowed={module: _copies(targets, module, parts) for module, parts in required.items()},
        token_ids=rows,
        tokens_in_head=shared,
    )


_TIED = {
    Part.EMBEDDING_A: Part.B,
    Part.EMBEDDING_B: Part.A,
    Part.MAGNITUDE: Part.MAGNITUDE,
    Part.WEIGHT: Part.WEIGHT,
}
"""What a change of the token table is to the head, whose matrix it is as well."""


def _copies(targets: BaseTargets, module: str, parts: Collection[Part]) -> frozenset[Part]:
    """PEFT keeps what a saved module was made from, and may add the tables of tokens."""
    if Part.WEIGHT in parts and module in targets.biases:
        return frozenset({Part.BASE_WEIGHT, Part.BASE_BIAS})
    if Part.WEIGHT in parts or module in (targets.embedding, HEAD):
        return frozenset({Part.BASE_WEIGHT})
    return frozenset()


def _lora_parts(config: AdapterConfig, module: str, table: bool) -> set[Part]:
    parts = {Part.EMBEDDING_A, Part.EMBEDDING_B} if table else {Part.A, Part.B}
    if config.use_dora:
        parts.add(Part.MAGNITUDE)
    if config.lora_bias:
        if table:
            raise UnsupportedFeature("lora_bias on embeddings", module)
        parts.add(Part.B_BIAS)
    if table and config.invocation:
        raise UnsupportedFeature("alora_invocation_tokens together with LoRA on embeddings", module)
    return parts


def _saved_parts(targets: BaseTargets, module: str, name: str) -> set[Part]:
    if module in targets.linear and module != HEAD:
        advice = "it may name lm_head, norms and the token table"
        raise UnsupportedFeature("modules_to_save", name, advice)
    return {Part.WEIGHT, Part.BIAS} if module in targets.biases else {Part.WEIGHT}


def _share_rows(config: AdapterConfig, targets: BaseTargets, name_of: Callable[[str], str]) -> bool:
    """PEFT ties the head to the rows of the table, unless the head is given other rows of its own."""
    own = token_ids_of(config, name_of(targets.embedding), table=True)
    head = token_ids_of(config, name_of(HEAD), table=False)
    if targets.tied and own and head and own != head and config.ensure_weight_tying:
        raise UnsupportedFeature("ensure_weight_tying with other tokens for the head", head)
    return targets.tied and bool(own) and head in ((), own)


def _token_rows(
    config: AdapterConfig, targets: BaseTargets, name_of: Callable[[str], str], shared: bool
) -> dict[str, tuple[int, ...]]:
    rows = {targets.embedding: token_ids_of(config, name_of(targets.embedding), table=True)}
    if HEAD in targets.linear:
        rows[HEAD] = () if shared else token_ids_of(config, name_of(HEAD), table=False)
    for name, ids in config.token_rows:
        if name and not any(name_of(module).endswith(name) for module in rows):
            raise UnsupportedFeature(
                "trainable_token_indices of a module", name, "it may name the token table"
            )
        if max(ids) >= targets.vocab:
            raise OutsideVocabulary("trainable_token_indices", max(ids), targets.vocab)
    if config.invocation and max(config.invocation) >= targets.vocab:
        raise OutsideVocabulary("alora_invocation_tokens", max(config.invocation), targets.vocab)
    return {module: ids for module, ids in rows.items() if ids}


def _tie_changes(config: AdapterConfig, targets: BaseTargets, required: Mapping[str, set[Part]]) -> None:
    """Asked to, PEFT changes a tied head as it does the table; it names the table alone and saves both."""
    if not (config.ensure_weight_tying and targets.tied):
        return
    table, head = required[targets.embedding], required[HEAD]
    tied = {_TIED[part] for part in table if part in _TIED}
    if head - {Part.TOKENS} - tied:
        raise UnsupportedFeature("ensure_weight_tying", True, "a changed head has to follow the token table")
    head |= tied


def _refuse_mixtures(
    config: AdapterConfig, targets: BaseTargets, required: Mapping[str, set[Part]], shared: bool
) -> None:
    """What PEFT refuses or ties differently; all of it concerns the two tables of tokens."""
    table, head = required[targets.embedding], required.get(HEAD, set[Part]())
    for parts in (table, head):
        if Part.TOKENS in parts and parts - {Part.TOKENS}:
            raise UnsupportedFeature(
                "trainable_token_indices together with another change of that table", True
            )
    if shared and Part.WEIGHT in head:
        raise UnsupportedFeature("trainable_token_indices together with a saved lm_head that is tied", True)
