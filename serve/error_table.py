"""The one table from an exception to what a client sees of it: HTTP status, type and code.

Only this module knows HTTP status codes.
"""

from dataclasses import dataclass
from typing import Any

import db.errors
import engine.errors
import lora.errors
from serve.errors import (
    AdapterAlreadyLoaded,
    AdapterNameTaken,
    AdapterNotServed,
    BodyTooLarge,
    BrokenTemplate,
    ContextTooLong,
    Forbidden,
    GenerationError,
    HeadersTooLarge,
    InputTooLong,
    InvalidBody,
    InvalidField,
    LinkProtocolError,
    MethodNotAllowed,
    NoReplica,
    NotHealthy,
    NotInBackground,
    PortTaken,
    PreviousResponseNotFound,
    RegistryUnavailable,
    RemoteError,
    ReplicaLost,
    ResponseNotFound,
    SpoolFull,
    Unauthorized,
    UnknownAdapterName,
    UnknownBatch,
    UnknownFile,
    UnknownModel,
    UnknownParameter,
    UnknownPath,
    UnsupportedParameter,
    WrongTask,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `shown` False hides the message, which may speak of the inside."""

    status: int
    type: str
    code: str
    shown: bool = True
    retry_after_s: int | None = None


def _bad(code: str, status: int = 400) -> Row:
    return Row(status, "invalid_request_error", code)


def _busy(code: str, status: int = 503) -> Row:
    return Row(status, "rate_limit_error" if status == 429 else "server_error", code, retry_after_s=1)


INTERNAL = Row(500, "server_error", "internal_error", shown=False)

TABLE: dict[type[Exception], Row] = {
    InvalidBody: _bad("invalid_body"),
    InvalidField: _bad("invalid_value"),
    UnsupportedParameter: _bad("unsupported_parameter"),
    UnknownParameter: _bad("unknown_parameter"),
    PreviousResponseNotFound: _bad("previous_response_not_found"),
    NotInBackground: _bad("not_in_background"),
    WrongTask: _bad("wrong_task"),
    BrokenTemplate: _bad("invalid_chat_template"),
    ContextTooLong: _bad("context_length_exceeded"),
    InputTooLong: _bad("context_length_exceeded"),
    BodyTooLarge: _bad("body_too_large", 413),
    HeadersTooLarge: _bad("headers_too_large", 431),
    UnknownPath: _bad("not_found", 404),
    MethodNotAllowed: _bad("method_not_allowed", 405),
    Unauthorized: Row(401, "authentication_error", "invalid_api_key"),
    Forbidden: Row(403, "permission_error", "admin_key_required"),
    UnknownModel: _bad("model_not_found", 404),
    ResponseNotFound: _bad("response_not_found", 404),
    UnknownFile: _bad("file_not_found", 404),
    UnknownBatch: _bad("batch_not_found", 404),
    UnknownAdapterName: _bad("adapter_not_found", 404),
    AdapterNotServed: _bad("adapter_not_loaded", 409),
    AdapterNameTaken: _bad("name_taken"),
    AdapterAlreadyLoaded: _bad("adapter_already_loaded"),
    NoReplica: _busy("no_replica"),
    ReplicaLost: _busy("replica_lost", 502),
    GenerationError: Row(500, "server_error", "generation_failed"),
    RegistryUnavailable: _busy("database_unavailable"),
    SpoolFull: _busy("record_refused"),
    LinkProtocolError: INTERNAL,
    PortTaken: INTERNAL,
    NotHealthy: INTERNAL,
    engine.errors.InvalidConfig: INTERNAL,
    engine.errors.InvalidParameter: _bad("invalid_value"),
    engine.errors.PromptTooLong: _bad("context_length_exceeded"),
    engine.errors.TooLargeForPool: _bad("context_length_exceeded"),
    engine.errors.QueueFull: _busy("queue_full", 429),
    engine.errors.DuplicateRequest: INTERNAL,
    engine.errors.BadGrammar: _bad("invalid_grammar"),
    engine.errors.GrammarTooComplex: _bad("grammar_too_complex"),
    engine.errors.GuideFailed: Row(500, "server_error", "generation_failed"),
    engine.errors.UnknownAdapter: _busy("adapter_unavailable"),
    engine.errors.NoAdapterSlots: _bad("no_adapter_slots"),
    engine.errors.AdapterInUse: _bad("adapter_in_use", 409),
    engine.errors.AdapterTooLarge: _bad("rank_too_large"),
    engine.errors.AdapterMismatch: _bad("adapter_mismatch"),
    engine.errors.ModelError: INTERNAL,
    engine.errors.NoChatTemplate: _bad("no_chat_template"),
    engine.errors.BadTemplateInput: _bad("invalid_value"),
    engine.errors.EngineBusy: INTERNAL,
    engine.errors.GenerationFailed: Row(500, "server_error", "generation_failed"),
    engine.errors.EmbeddingFailed: Row(500, "server_error", "embedding_failed"),
    engine.errors.EngineClosed: _busy("replica_stopping"),
    engine.errors.IntegrityError: INTERNAL,
    MemoryError: _busy("out_of_memory"),
    lora.errors.AdapterPathRefused: _bad("path_not_allowed"),
    lora.errors.AdapterNotFound: _bad("adapter_not_found", 404),
    lora.errors.UnreadableFile: _bad("unreadable_file"),
    lora.errors.InvalidConfig: _bad("invalid_config"),
    lora.errors.UnsupportedFeature: _bad("unsupported_feature"),
    lora.errors.InvalidWeights: _bad("damaged_weights"),
    lora.errors.InvalidChatTemplate: _bad("invalid_chat_template"),
    lora.errors.NotFinite: _bad("not_finite"),
    lora.errors.LimitExceeded: _bad("adapter_too_large"),
    lora.errors.RankTooLarge: _bad("rank_too_large"),
    lora.errors.WrongBase: _bad("wrong_base"),
    lora.errors.UnmatchedTensors: _bad("unmatched_tensors"),
    lora.errors.MissingTensors: _bad("missing_tensors"),
    lora.errors.WrongShape: _bad("wrong_shape"),
    lora.errors.WrongVocabulary: _bad("wrong_vocabulary"),
    lora.errors.OutsideVocabulary: _bad("outside_vocabulary"),
    lora.errors.BaseLacksTensor: _bad("base_lacks_tensor"),
    lora.errors.IdenticalToBase: _bad("identical_to_base"),
    lora.errors.SelfCheckFailed: Row(500, "server_error", "self_check_failed"),
    lora.errors.InvalidStore: INTERNAL,
    lora.errors.StoreUnavailable: _busy("store_unavailable"),
    lora.errors.InvalidDigest: INTERNAL,
    lora.errors.NotInStore: _busy("adapter_unavailable"),
    lora.errors.DamagedCopy: _busy("adapter_unavailable"),
    lora.errors.InvalidKey: INTERNAL,
    lora.errors.NoObject: Row(500, "server_error", "content_missing"),
    lora.errors.DamagedObject: Row(500, "server_error", "content_damaged"),
    lora.errors.AdapterOverBudget: _bad("adapter_too_large"),
    lora.errors.PinsFillBudget: _bad("pins_fill_memory", 409),
    lora.errors.StopsUnusable: INTERNAL,
    lora.errors.ResidencyClosed: _busy("replica_stopping"),
    db.errors.DatabaseAway: _busy("database_unavailable"),
    db.errors.NotFound: _bad("not_found", 404),
    db.errors.Conflict: _bad("conflict", 409),
    db.errors.InvalidValue: _bad("invalid_value"),
    db.errors.IllegalTransition: _bad("illegal_transition", 409),
    db.errors.GateClosed: _bad("gate_closed", 409),
    db.errors.EmptySnapshot: INTERNAL,
    db.errors.EmbeddedServerError: INTERNAL,
    db.errors.MigrationError: INTERNAL,
}


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """What a client is told: the HTTP status, the OpenAI error object, and extra headers."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]


def answer_for(error: Exception) -> ErrorAnswer:
    """The answer to any exception; one that the table does not know is an internal error without its text."""
    row = row_for(type(error)) or INTERNAL
    if isinstance(error, RemoteError):
        row = _BY_NAME.get(error.kind, INTERNAL)
    message = str(error) if row.shown else "internal error"
    detail = {"message": message, "type": row.type, "param": getattr(error, "param", None), "code": row.code}
    headers = {"retry-after": str(row.retry_after_s)} if row.retry_after_s else {}
    return ErrorAnswer(row.status, {"error": detail}, headers)


def row_for(kind: type[BaseException]) -> Row | None:
    """The table's row of an exception class or of its nearest ancestor in the table."""
    return next((TABLE[base] for base in kind.__mro__ if base in TABLE), None)


def _names() -> dict[str, Row]:
    """Rows by class name, for exceptions that crossed the wire: the table's classes and all below them."""
    found: dict[str, Row] = {}
    waiting: list[type[Exception]] = list(TABLE)
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if row := row_for(kind):
            found.setdefault(kind.__name__, row)
    return found


_BY_NAME = _names()
