"""The JSON files of runs and studies as types; an error names the file, the place and the fix."""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Required, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from configs.errors import ConfigError
from configs.files import read_bytes

# The version of a run folder's files (docs/architecture.md); a newer one is refused.
SCHEMA_VERSION = 1
STRICT = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
_Kind = TypeVar("_Kind")


class AttemptEntry(TypedDict, total=False):
    """The facts about one attempt in the manifest; further ones follow from the kind of run."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    attempt: Required[Annotated[int, Field(ge=1, lt=10**9)]]
    time: float
    began: float
    ended: float
    engine: str
    host: str
    folder: str
    slurm: dict[str, str | int]
    turn: str
    placement: list[dict[str, Any]]
    compile: bool | Literal["graphs"]
    prompts: list[str]


class Manifest(TypedDict, total=False):
    """`manifest.json`; `config` is config.yaml as it was when the run began."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    schema_version: int
    run: str
    config: dict[str, Any]
    attempts: list[AttemptEntry]


class ErrorNote(TypedDict, total=False):
    """`attempts/NNN/error.json`, by the first rank that failed."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    reason: str
    message: str
    rank: int
    node: str


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_json(path: Path, kind: type[_Kind], *, fix: str = "restore it or delete it") -> _Kind:
    """Return the content of a JSON file; raise `ConfigError`, ending in `fix`, if it is no `kind`.

    A missing file raises `FileNotFoundError`.
    """
    try:
        content: _Kind = _adapter(kind).validate_json(read_bytes(path))  # type: ignore[arg-type]
        return content
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; {fix}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = first["msg"].replace("Input should be", "expected")
        raise ConfigError(f"{path}: {place and f'{place}: '}{problem}; {fix}") from None


def read_manifest(path: Path) -> Manifest:
    """Return a manifest, empty if none is written yet."""
    try:
        manifest = read_json(path, Manifest, fix="restore it, or delete it: the run goes on")
    except FileNotFoundError:
        return {}
    version = manifest.get("schema_version", SCHEMA_VERSION)
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"{path}: schema_version {version} is of a newer ditbench, this one reads up to "
            f"{SCHEMA_VERSION}; update the checkout"
        )
    return manifest


def read_error_note(attempt: Path) -> ErrorNote:
    """Return the error note of an attempt; empty without one, or if a full disk cut it short."""
    try:
        return read_json(attempt / "error.json", ErrorNote)
    except (FileNotFoundError, ConfigError):
        return {}
