"""Errors of pipeline.

PipelineError
├── InvalidOption         a training option is unknown or out of range
├── UnknownMethod         no such training method
├── BadDataset            the snapshot cannot be trained on
│   ├── TooFewExamples
│   ├── OneSidedLabels
│   ├── TooManyDropped
│   ├── AlteredSnapshot
│   └── StopTokenMissing
├── TrainingFailed        the trainer process ended without a usable adapter
│   └── AdapterUnsound    it saved one, but its numbers are not those of a trained adapter
├── AdapterIdTaken        the new adapter's id exists already
├── EvaluationVoid        too much of a suite stayed unscored
└── WrongSubject          an answer came from another model than the one under evaluation
"""


class PipelineError(Exception):
    """A step of the loop that cannot be done as asked."""


class InvalidOption(PipelineError):
    """`option` with the value met and the values allowed."""

    def __init__(self, option: str, value: object, allowed: str) -> None:
        super().__init__(f"{option} is {value!r}; allowed: {allowed}")
        self.option = option


class UnknownMethod(PipelineError):
    """No method of that name is registered."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"unknown training method {name!r}; known: {', '.join(known)}")


class BadDataset(PipelineError):
    """The rows cannot be trained on."""


class TooFewExamples(BadDataset):
    """Fewer examples than the run asks for."""

    def __init__(self, have: int, need: int, what: str = "examples") -> None:
        super().__init__(f"too few {what}: have {have}, need {need}")


class OneSidedLabels(BadDataset):
    """Every example has the same label, so there is nothing to prefer over anything."""

    def __init__(self, desirable: int, undesirable: int) -> None:
        super().__init__(
            f"labels are one-sided: {desirable} desirable and {undesirable} undesirable; need both "
            "(pass allow_one_sided to train all the same)"
        )


class TooManyDropped(BadDataset):
    """More rows than allowed have a prompt that fills max_length."""

    def __init__(self, n_in: int, n_dropped: int, max_share: float, max_length: int) -> None:
        super().__init__(
            f"{n_dropped} of {n_in} examples have a prompt of {max_length} tokens or more and would be "
            f"dropped; allowed share: {max_share:g} (raise max_length)"
        )


class AlteredSnapshot(BadDataset):
    """The stored rows are not those that were frozen."""

    def __init__(self, snapshot_id: str) -> None:
        super().__init__(f"the rows of snapshot {snapshot_id} no longer match its hashes; freeze a new one")


class StopTokenMissing(BadDataset):
    """The chat template does not end an answer with a stop token of the base model."""

    def __init__(self, stop_id: int) -> None:
        super().__init__(
            f"no finished answer holds the base model's stop token {stop_id} after its chat template; "
            "a model trained on these rows would not learn to stop"
        )


class TrainingFailed(PipelineError):
    """The trainer process failed; the message carries its own words or the end of its log."""


class AdapterUnsound(TrainingFailed):
    """A tensor is missing, not finite or still zero, or the loss was zero or not finite."""


class AdapterIdTaken(PipelineError):
    """An adapter version is never rewritten, so a run for a taken id could not publish."""

    def __init__(self, adapter_id: str) -> None:
        super().__init__(f"adapter {adapter_id!r} exists; a version is never rewritten, choose a new id")


class EvaluationVoid(PipelineError):
    """Too many cases of a suite stayed unscored for its figures to mean anything."""

    def __init__(self, metric: str, unscored: int, asked: int, allowed: float, example: str | None) -> None:
        because = f"; for instance: {example}" if example else ""
        super().__init__(
            f"{metric}: {unscored} of {asked} scores missing, allowed share {allowed:g}{because}"
        )


class WrongSubject(PipelineError):
    """The endpoint answered with another version than the one asked for."""

    def __init__(self, model: str, expected: str, served: str) -> None:
        super().__init__(f"asked for {model!r} with fingerprint {expected}, an answer came from {served}")
