"""The request of a user who submits a batch script: a study of it, and the flags of sbatch."""

import hashlib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.files import read_bytes
from configs.load import Tree, merge, read_tree, resolve, resolve_study
from configs.schema import Command, Study
from launch.check.kinds import kind_of
from launch.lint.script import Script, parse_script, sbatch_flags
from launch.script.edit import present_value, seed_name
from launch.slurm import client
from launch.submit.snapshot import Repository
from launch.submit.submission import Choices
from runs.attempt.script import NEAR_LIMIT_S

_SIGNAL = re.compile(r"[BR]*B[BR]*:(?:SIG)?(USR1|USR2|TERM)(?:@\d+)?", re.IGNORECASE)
# Keys of a study that apply to a script.
_KEYS = {"kind", "base", "question", "set", "axes", "repeats"}


@dataclass(frozen=True, kw_only=True)
class ScriptRequest:
    """A batch script, and how it is submitted; `umask` is the user's.

    `study` has the script as `base`, its arguments and the flags of later attempts in `set` (`run`,
    `resume`), and the varied names in `axes`: `--lr`, `LR`, and `seed` for whatever sets the seed.
    """

    study: Study
    flags: list[str]
    choices: Choices
    umask: int
    repository: Repository | None = None

    @property
    def source(self) -> Path:
        """The path of the script."""
        return Path(str(self.study.base))

    @property
    def arguments(self) -> list[str]:
        """The arguments of the script."""
        return shlex.split(self.study.set.get("run", ""))

    @property
    def resume(self) -> str | None:
        """The flags of later attempts."""
        return self.study.set.get("resume")

    @cached_property
    def text(self) -> str:
        """The script, byte for byte: undecodable bytes stay as they are."""
        return _text(self.source)

    @cached_property
    def script(self) -> Script:
        """The script as the linter reads it."""
        return parse_script(self.text, path=self.source)

    @cached_property
    def names(self) -> dict[str, str]:
        """The names that are varied, by the key of the config that holds their value."""
        found = {key_of(name): name for name in self.study.axes}
        if len(found) < len(self.study.axes):
            raise ConfigError(f"{', '.join(self.study.axes)}: one name is varied twice")
        seeds = {"seed": seed_name(self.text, path=self.source)} if "seed" in found else {}
        return found | seeds

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The values of each key that is varied."""
        return {key_of(name): values for name, values in self.study.axes.items()}

    @property
    def added(self) -> list[str]:
        """The flags of sbatch that are added to the script's own and to the user's."""
        if self.resume is None:
            return []
        near = [] if self.options.get("signal") else [f"--signal=B:USR1@{NEAR_LIMIT_S}"]
        return [*near, "--requeue", "--open-mode=append"]

    @cached_property
    def options(self) -> dict[str, str]:
        """The values of the script's `#SBATCH` lines and of the user's flags, by long name."""
        return sbatch_options(self.script, self.flags)

    def config(self, folder: Path) -> Command:
        """Return the config of a run in a working directory."""
        tree = {
            "kind": "command",
            "script": str(self.source.absolute()),
            "script_digest": hashlib.sha256(read_bytes(self.source)).hexdigest()[:12],
            "folder": str(folder),
            "signal": signal_of(self.options) if self.resume is not None else None,
            "resources": resources_of(self.options),
        }
        found = resolve(merge(tree, self.study.set), source=str(self.source))
        assert isinstance(found, Command)
        return found


def sbatch_options(script: Script, flags: list[str]) -> dict[str, str]:
    """Return the values of a script's `#SBATCH` lines by long name; values in `flags` win."""
    own = {name: one.value for name, one in script.directives.items()}
    return own | dict(sbatch_flags(shlex.join(flags)))


def signal_of(options: dict[str, str]) -> str | None:
    """Return the signal that Slurm sends the batch script near its limit; None if none."""
    found = _SIGNAL.fullmatch(options.get("signal", ""))
    return found[1].upper() if found else None


def resources_of(options: dict[str, str]) -> dict[str, Any]:
    """Return the nodes, GPUs and hours; a request that is not understood counts as none."""
    nodes = max([1, *map(int, re.findall(r"\d+", options.get("nodes", "1")))])
    named = next((options[key] for key in ("gpus-per-node", "gres", "gpus") if key in options), "")
    gpu = re.search(r"(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d+)$", named.removeprefix("gpu:"))
    count = int(gpu[2]) if gpu else 0
    if gpu and "gpus-per-node" not in options and "gres" not in options:
        count = -(-count // nodes)
    time_s = client.parse_duration(options.get("time", ""))
    return {
        "nodes": nodes,
        "gpus_per_node": count,
        "gpu": gpu[1] if gpu else None,
        **({"hours": round(time_s / 3600, 4)} if time_s else {}),
    }


def is_of_a_script(path: Path) -> bool:
    """Return whether a path is a batch script, or a study of one that is written down."""
    if not path.is_file() or kind_of(path) != "config":
        return path.is_file() and kind_of(path) == "batch script"
    base = read_tree(path).get("base")
    return isinstance(base, str) and kind_of(path.parent / base) == "batch script"


def script_study(
    source: Path, *, arguments: Sequence[str] = (), varied: Sequence[str] = (), seeds: int = 0,
    repeats: int = 1, resume: str | None = None,
) -> Study:  # fmt: skip
    """Return the study of a script or of a file, with what the command line adds.

    `varied` are words such as `--lr=1e-4,3e-4`.
    """
    tree: Tree = {"base": str(source)}
    if kind_of(source) == "config":
        tree = read_tree(source)
        if other := sorted(tree.keys() - _KEYS):
            raise ConfigError(f"{source}: {other[0]}: does not apply to a batch script; remove it")
        tree["base"] = str(source.parent / tree["base"])
    given = [_axis(word) for word in varied]
    axes = tree.get("axes", {}) | dict(given)
    if len(dict(given)) < len(given):
        raise ConfigError(f"--vary: {' '.join(varied)}: one name is varied twice")
    if seeds:
        path = Path(tree["base"])
        text = _text(path)
        now = present_value(text, seed_name(text, path=path), path=path)
        first = int(now) if now.isdigit() else 0
        axes["seed"] = list(range(first, first + seeds))
    given_now = {"run": shlex.join(arguments), "resume": resume}
    tree["set"] = tree.get("set", {}) | {name: value for name, value in given_now.items() if value}
    more = {"repeats": repeats} if repeats != 1 else {}
    study = resolve_study(tree | more | {"axes": axes, "report": False}, source=str(source))
    if labelled := [name for name, values in study.axes.items() if isinstance(values, dict)]:
        raise ConfigError(f"{source}: {labelled[0]}: of a batch script write [VALUE, VALUE]")
    return study


def _axis(word: str) -> tuple[str, list[str]]:
    name, equals, values = word.partition("=")
    if not equals or not values:
        raise ConfigError(f"--vary {word}: write --vary --FLAG=V1,V2 or --vary NAME=V1,V2")
    return name, values.split(",")


def _text(path: Path) -> str:
    return read_bytes(path).decode(errors="surrogateescape")


def key_of(name: str) -> str:
    """Return the key of the config that holds the value of a flag, a key or a variable."""
    if name == "seed":
        return name
    plain = name.lstrip("-+").replace("-", "_").replace(".", "_").replace("/", "_")
    return f"params.{plain}"
