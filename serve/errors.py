"""Everything this package raises. What a client sees of it: serve/error_table.py.

ServeError
├── BadRequest
│   ├── InvalidBody               not JSON, not an object, wrong content type
│   ├── InvalidField              a parameter with a wrong type or value
│   ├── UnsupportedParameter      documented elsewhere, not served here
│   ├── UnknownParameter          no API of this kind has it
│   ├── PreviousResponseNotFound  no kept conversation to go on from
│   ├── NotInBackground           an answer that is not made in the background cannot be cancelled
│   ├── WrongTask                 the model is not served for that
│   ├── BrokenTemplate            an adapter's chat template does not compile
│   ├── InputTooLong              a text to embed with more tokens than the model takes
│   └── ContextTooLong            the prompt leaves no room for an answer
├── BodyTooLarge
├── HeadersTooLarge
├── UnknownPath                   no route has this path
├── MethodNotAllowed              the path has no route for this method
├── Unauthorized                  no valid API key
├── Forbidden                     not the admin key
├── UnknownModel                  neither adapter, endpoint nor base model
├── ResponseNotFound              no answer of this id is kept
├── UnknownFile                   no file of this tenant has the id
├── UnknownBatch                  no batch of this tenant has the id
├── UnknownAdapterName            unload of a name that is not loaded
├── AdapterNameTaken              the name belongs to something else
├── AdapterAlreadyLoaded          load without load_inplace
├── NoReplica                     no live replica of the base model
├── ReplicaLost                   the replica went away in mid-request
├── GenerationError               the engine gave up this request
├── RegistryUnavailable           a change needs the database, and it is away
├── SpoolFull                     the request record's spool holds all it may
├── LinkProtocolError             a peer of the data plane that speaks something else
├── PortTaken                     deploy: somebody listens there already
├── NotHealthy                    deploy: the app did not come up in time
└── RemoteError                   an exception on a replica, known here by its name

A message says what was wrong, the value met and the value allowed.
"""

from collections.abc import Mapping
from typing import ClassVar


class ServeError(Exception):
    """Base of every error of this package."""


class BadRequest(ServeError):
    """The client must change the request; `param` names the part."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class InvalidBody(BadRequest):
    """The body as a whole cannot be read."""


class InvalidField(BadRequest):
    """One parameter has a wrong type or value."""


class UnsupportedParameter(BadRequest):
    """A parameter of the OpenAI or vLLM API that is not served."""

    def __init__(self, param: str, value: object, allowed: str) -> None:
        super().__init__(f"{param} is {brief(value)}, which is not supported here; allowed: {allowed}", param)


class UnknownParameter(BadRequest):
    """A parameter that no API of this kind has."""

    def __init__(self, param: str) -> None:
        super().__init__(f"unrecognized parameter {brief(param)}", param)


class PreviousResponseNotFound(BadRequest):
    """The conversation to go on from is not kept, or not whole any more."""

    def __init__(self, response_id: str, reason: str) -> None:
        name = brief(response_id, quote=False)
        super().__init__(f"Previous response with id '{name}' not found: {reason}.", "previous_response_id")


class NotInBackground(BadRequest):
    """Only answers that are made in the background can be cancelled, and none are."""

    def __init__(self) -> None:
        super().__init__("only responses created with background: true can be cancelled, which is not served")


class WrongTask(BadRequest):
    """The model generates where it should embed, or embeds where it should generate."""

    _USES: ClassVar[Mapping[str, str]] = {
        "generate": "it generates text; a model of task 'embed' makes vectors",
        "embed": "it makes vectors; use /v1/embeddings, or a model of task 'generate'",
    }

    def __init__(self, name: str, task: str) -> None:
        super().__init__(f"{brief(name)} is a model of task {task!r}: {self._USES[task]}", "model")


class BrokenTemplate(BadRequest):
    """An adapter whose own chat template does not compile."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the adapter cannot be served: {reason}", "lora_path")


class ContextTooLong(BadRequest):
    """The prompt leaves no room for one generated token."""

    def __init__(self, got: int, allowed: int, param: str) -> None:
        super().__init__(
            f"This model's maximum context length is {allowed} tokens. However, your prompt contains {got} "
            "input tokens and at least 1 token must be left for the answer.",
            param,
        )


class InputTooLong(BadRequest):
    """A text of more tokens than the model takes."""

    def __init__(self, got: int, allowed: int, param: str) -> None:
        super().__init__(
            f"This model's maximum context length is {allowed} tokens. However, {param} contains {got} "
            "tokens; shorten it, or set truncate_prompt_tokens.",
            param,
        )


class BodyTooLarge(ServeError):
    """More bytes than a request may have."""

    def __init__(self, allowed: int) -> None:
        super().__init__(f"the request body is larger than the {allowed} bytes allowed")


class HeadersTooLarge(ServeError):
    """More bytes than the headers of a request may have."""

    def __init__(self, got: int, allowed: int) -> None:
        super().__init__(f"the request's headers have {got} bytes; at most {allowed} are allowed")


class UnknownPath(ServeError):
    """No route has this path."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"Not Found: {method} {brief(path, quote=False)}")


class MethodNotAllowed(ServeError):
    """The path has a route, but not for this method."""

    def __init__(self, method: str, path: str, allowed: str) -> None:
        super().__init__(
            f"Method Not Allowed: {method} {brief(path, quote=False)}; allowed: {allowed or 'none'}"
        )


class Unauthorized(ServeError):
    """No API key, or one that is not known."""

    def __init__(self) -> None:
        super().__init__("a valid API key is needed: send it as 'Authorization: Bearer <key>'")


class Forbidden(ServeError):
    """The admin API was called without the admin key."""

    def __init__(self) -> None:
        super().__init__("the admin key is needed: send it as 'Authorization: Bearer <key>'")


class UnknownModel(ServeError):
    """No adapter, endpoint or base model has this name; nothing else answers in its place."""

    param = "model"

    def __init__(self, name: str) -> None:
        super().__init__(f"The model `{brief(name, quote=False)}` does not exist.")


class ResponseNotFound(ServeError):
    """The tenant has no kept answer of this id."""

    param = "response_id"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response with id '{brief(response_id, quote=False)}' not found.")


class UnknownFile(ServeError):
    """The tenant has no file of this id, or it has expired."""

    param = "file_id"

    def __init__(self, file_id: str) -> None:
        super().__init__(f"No such file: '{brief(file_id, quote=False)}'.")


class UnknownBatch(ServeError):
    """The tenant has no batch of this id."""

    param = "batch_id"

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"No such batch: '{brief(batch_id, quote=False)}'.")


class UnknownAdapterName(ServeError):
    """No adapter has this name, or none is loaded under it."""

    def __init__(self, name: str, param: str = "lora_name") -> None:
        super().__init__(f"The lora adapter '{brief(name, quote=False)}' cannot be found.")
        self.param = param


class AdapterNotServed(ServeError):
    """Neither loaded nor part of an endpoint's traffic, so no replica needs it."""

    param = "id"

    def __init__(self, name: str) -> None:
        super().__init__(f"The lora adapter '{brief(name, quote=False)}' is not loaded; load it first.")


class AdapterNameTaken(ServeError):
    """The name belongs to a base model, an endpoint or a versioned adapter."""

    param = "lora_name"

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"The lora adapter '{brief(name, quote=False)}' conflicts with {owner}.")


class AdapterAlreadyLoaded(ServeError):
    """The name is loaded, and replacing it was not asked for."""

    param = "lora_name"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The lora adapter '{brief(name, quote=False)}' has already been loaded. If you want to load the "
            "adapter in place, set 'load_inplace' to True."
        )


class NoReplica(ServeError):
    """No live replica serves the base model at this moment."""

    def __init__(self, model: str) -> None:
        super().__init__(f"no replica of base model {model!r} is ready; try again shortly")


class ReplicaLost(ServeError):
    """The connection to the replica broke before the answer was complete."""

    def __init__(self) -> None:
        super().__init__("the replica that worked on this request went away; try again")


class GenerationError(ServeError):
    """The engine ended this request with an error."""


class RegistryUnavailable(ServeError):
    """A change of the registry needs the database."""

    def __init__(self) -> None:
        super().__init__("the database is away: serving goes on, changes must wait")


class SpoolFull(ServeError):
    """A record was not kept because the spool is full or its disk refuses writes."""


class LinkProtocolError(ServeError):
    """The peer sent a frame that is too long, malformed or without the shared token."""


class PortTaken(ServeError):
    """Another process listens on the address."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} is in use by another process; choose another port")


class NotHealthy(ServeError):
    """The app did not become healthy in the time allowed."""


class RemoteError(ServeError):
    """An exception raised on a replica; `kind` is the name of its class there."""

    def __init__(self, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.param = param


def brief(value: object, quote: bool = True) -> str:
    """A value met, short enough for a message."""
    text = repr(value) if quote else str(value)
    return text if len(text) <= 120 else text[:117] + "..."
