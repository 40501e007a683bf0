"""A folder that somebody wants to load: read, matched with a base model, its own chat template compiled.

Blocks; threads call it. Changes nothing anywhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.confined_template import TemplateProcesses
from engine.errors import UnsupportedModel
from lora.format import Adapter, MatchReport, check_against, read_adapter, resolve_adapter_path
from lora.registry import RegistrySnapshot
from serve.config import AppConfig
from serve.errors import BrokenTemplate, InvalidField, NoReplica
from serve.protocol.admin import LoadAdapterBody
from serve.routing import CHAT_TEMPLATE, FORCED, ServedModel


@dataclass(frozen=True, slots=True)
class Candidate:
    """A folder that was read and fits a base model."""

    adapter: Adapter
    model: ServedModel
    report: MatchReport

    @property
    def forced(self) -> bool:
        """Whether the adapter names another base model and was accepted all the same."""
        return self.report.base_match == "forced"

    def config(self) -> dict[str, Any]:
        """What the registry keeps of it; the chat template only where it is not the base model's."""
        kept = dict(self.adapter.config.canonical()) | ({FORCED: True} if self.forced else {})
        return kept | ({} if self.own_template is None else {CHAT_TEMPLATE: self.own_template})

    @property
    def own_template(self) -> str | None:
        """The adapter's chat template; None where it has none, or the base model's."""
        own, base = self.adapter.chat_template, self.model.tokenizer.chat_template
        return None if base is not None and own == base.source else own


class CandidateReader:
    """Reads candidates for the base models of one gateway."""

    def __init__(
        self,
        config: AppConfig,
        models: Mapping[str, ServedModel],
        snapshot: Callable[[], RegistrySnapshot],
    ) -> None:
        self._config = config
        self._models = models
        self._snapshot = snapshot

    def read(self, body: LoadAdapterBody) -> Candidate:
        """Raises InvalidField, NoReplica, BrokenTemplate, and what reading and matching an adapter raise."""
        adapter = read_adapter(resolve_adapter_path(body.lora_path, self._config.adapter_roots))
        model = self._base_of(body, adapter)
        report = check_against(
            adapter,
            model.spec.adapter_targets,
            base_digest=self._base_digest(model),
            base_names=model.config.base_names,
            max_rank=model.config.engine.max_lora_rank,
            force=body.force,
        )
        candidate = Candidate(adapter, model, report)
        if candidate.own_template is not None:
            _compile(model, candidate.own_template)
        return candidate

    def _base_of(self, body: LoadAdapterBody, adapter: Adapter) -> ServedModel:
        """The base model that is named, the only one there is, or the one the adapter itself names."""
        allowed = ", ".join(sorted(self._models))
        if body.base_model is not None:
            if body.base_model not in self._models:
                raise InvalidField(f"base_model is {body.base_model!r}; allowed: {allowed}", "base_model")
            return self._models[body.base_model]
        if len(self._models) == 1:
            return next(iter(self._models.values()))
        config = adapter.config
        for model in self._models.values():
            digest, names = self._base_digest(model), model.config.base_names
            if config.revision == digest or config.base_model_name_or_path in names:
                return model
        raise InvalidField(
            f"base_model is missing, the adapter has {config.base_model_name_or_path!r}; allowed: {allowed}",
            "base_model",
        )

    def _base_digest(self, model: ServedModel) -> str:
        row = self._snapshot().base_models.get(model.name)
        if row is None:
            raise NoReplica(model.name)
        return row.digest


def _compile(model: ServedModel, template: str) -> None:
    """Raises BrokenTemplate, before anything is served by it."""
    processes = TemplateProcesses(1)
    try:
        model.tokenizer.confined_template(template, processes).check()
    except UnsupportedModel as error:
        raise BrokenTemplate(str(error)) from error
    finally:
        processes.close()
