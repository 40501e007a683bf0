"""The shape that each tensor of an adapter must have for its module of the base."""

from collections.abc import Mapping

from lora.errors import WrongShape, WrongVocabulary
from lora.match_report import MatchedModule
from lora.targets import HEAD, BaseTargets
from lora.tensor_names import Part


def check_shapes(modules: Mapping[str, MatchedModule], targets: BaseTargets) -> None:
    """Raise WrongShape, or WrongVocabulary where a table of tokens is longer or shorter than the base's."""
    for name, module in modules.items():
        expected = _shapes(name, module, targets)
        for part, tensor in module.parts.items():
            if tensor.shape == expected[part]:
                continue
            axis = _vocabulary_axis(name, part, targets)
            if axis is not None and _differs_at(axis, tensor.shape, expected[part]):
                raise WrongVocabulary(tensor.name, tensor.shape[axis], targets.vocab)
            raise WrongShape(tensor.name, expected[part], tensor.shape)


def _shapes(name: str, module: MatchedModule, targets: BaseTargets) -> Mapping[Part, tuple[int, ...]]:
    rank, hidden, vocab = module.rank, targets.hidden, targets.vocab
    tokens = {Part.TOKENS: (len(module.token_ids), hidden)}
    if name == targets.embedding:
        table = (vocab, hidden)
        return tokens | {
            Part.EMBEDDING_A: (rank, vocab),
            Part.EMBEDDING_B: (hidden, rank),
            Part.MAGNITUDE: (hidden,),
            Part.WEIGHT: table,
            Part.BASE_WEIGHT: table,
        }
    if name in targets.norms:
        own = (targets.norms[name],)
        return dict.fromkeys((Part.WEIGHT, Part.BIAS, Part.BASE_WEIGHT, Part.BASE_BIAS), own)
    outputs, inputs = targets.linear[name]
    return tokens | {
        Part.A: (rank, inputs),
        Part.B: (outputs, rank),
        Part.B_BIAS: (outputs,),
        Part.MAGNITUDE: (outputs,),
        Part.BIAS: (outputs,),
        Part.WEIGHT: (outputs, inputs),
        Part.BASE_WEIGHT: (outputs, inputs),
    }


def _differs_at(axis: int, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and [at for at in range(len(one)) if one[at] != other[at]] == [axis]


def _vocabulary_axis(name: str, part: Part, targets: BaseTargets) -> int | None:
    """Which dimension of the tensor counts tokens."""
    if name == targets.embedding:
        return {Part.EMBEDDING_A: 1, Part.WEIGHT: 0, Part.BASE_WEIGHT: 0}.get(part)
    if name == HEAD and part not in (Part.A, Part.TOKENS):
        return 0
    return None
