"""The contracts of docs/architecture.md on imports, folders and names.

Imports form a star around `configs`, which says what can be asked for, and `runs`, which holds what
happened. `finetune` also imports `train.engine`, whose attempts, ranks,
checkpoints and loop it shares.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from configs.schema import MODELS, keys
from runs.records import EVENTS
from runs.state.reasons import reasons

PARTS = ("configs", "runs", "launch", "train", "finetune", "analysis")
# Commands that only launch.slurm may run.
SLURM = {"sbatch", "squeue", "sacct", "scontrol", "sinfo", "scancel", "sacctmgr"}
# The most modules that a folder may hold, __init__.py included.
MOST_MODULES = 18


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(*parts: str) -> Iterator[Path]:
    """Every module of some parts, or of some folders in them."""
    for part in parts:
        yield from sorted(Path(part).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The dotted names of all modules that a file imports, at its top or later."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            # `from train import encode` names a module, `from train.encode import run` does not.
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_of_ours(path: Path) -> set[str]:
    return {name for name in imported(path) if name.partition(".")[0] in PARTS}


def is_below(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("configs", ("configs",)),
        ("runs", ("runs", "configs")),
        ("launch", ("launch", "runs", "configs")),
        ("train", ("train", "runs", "configs")),
        ("train/engine", ("train.engine", "runs", "configs")),
        ("finetune", ("finetune", "train.engine", "runs", "configs")),
        ("analysis", ("analysis", "runs", "configs")),
        ("analysis/stats", ("analysis.stats",)),
    ],
)
def test_a_part_imports_only_what_it_may(folder: str, allowed: tuple[str, ...]) -> None:
    # The package above an allowed one is named in `from train.engine import clocks`.
    parents = {name.rpartition(".")[0] for name in allowed}
    for path in modules(folder):
        found = {name for name in imported_of_ours(path) if not is_below(name, *allowed)}
        assert found <= parents - {""}, path


def test_configs_runs_and_analysis_import_no_torch() -> None:
    for path in modules("configs", "runs", "analysis"):
        assert not any(is_below(name, "torch") for name in imported(path)), path


def test_the_light_installation_has_what_scripts_of_users_need() -> None:
    lines = Path("env/light.txt").read_text(encoding="utf-8").splitlines()
    light = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    of_module = {"PIL": "pillow", "google": "tensorboard", "pynvml": "nvidia-ml-py",
                 "typing_extensions": "pydantic", "yaml": "pyyaml"}  # fmt: skip
    names = {
        name.partition(".")[0]
        for path in modules("configs", "runs", "launch", "analysis")
        for name in imported(path)
    }
    needed = {of_module.get(name, name) for name in names - sys.stdlib_module_names - {*PARTS}}
    assert needed - light == {"pandas", "wandb"}, "`export` alone needs these"


def test_only_launch_slurm_imports_submitit() -> None:
    for path in modules(*PARTS):
        if Path("launch/slurm") not in path.parents:
            assert not any(is_below(name, "submitit") for name in imported(path)), path


def test_only_analysis_stats_takes_quantiles() -> None:
    for path in modules("analysis"):
        if Path("analysis/stats") not in path.parents:
            assert not any(
                is_below(name, "scipy.special", "scipy.stats") for name in imported(path)
            ), path


def first_word(call: ast.Call) -> object:
    """The first argument of a call, or the first element of a list that stands there."""
    if not call.args:
        return None
    first = call.args[0]
    if isinstance(first, ast.List | ast.Tuple) and first.elts:
        first = first.elts[0]
    return first.value if isinstance(first, ast.Constant) else None


def test_only_launch_slurm_runs_commands_of_slurm() -> None:
    for path in modules(*PARTS):
        if Path("launch/slurm") in path.parents:
            continue
        calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
        run = [
            call for call in calls if re.search(r"run|Popen|check_|call", ast.unparse(call.func))
        ]
        assert not [call.lineno for call in run if first_word(call) in SLURM], path


def test_one_module_each_reads_what_torchrun_and_what_slurm_set() -> None:
    for path in modules(*PARTS):
        text = path.read_text(encoding="utf-8")
        if path != Path("train/engine/distributed.py"):
            assert '"WORLD_SIZE"' not in text, path
        if path != Path("runs/slurm_env.py") and path.parts[0] != "launch":
            assert '"SLURM_' not in text, path


# The unpickler itself, and weights read with `weights_only`.
_MAY_NAME_PICKLE = {"train/engine/unpickler.py", "train/evaluate/fid_features.py"}


def test_ranks_exchange_no_objects_and_only_dcp_is_unpickled() -> None:
    for path in modules("train", "finetune"):
        named = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Attribute | ast.Name)
        }
        assert not {name for name in named if re.search(r"_object(_list)?$", name)}, path
        text = path.read_text(encoding="utf-8")
        if path != Path("train/engine/unpickler.py"):
            assert not re.search(r"dcp\.load|FileSystemReader", text), path
        if str(path) not in _MAY_NAME_PICKLE:
            assert not re.search(r"^\s*(import|from) (pickle|dill|joblib|shelve)", text, re.M), path
            assert "weights_only=False" not in text, path


# Names of events that mean nothing else; and where other names of events and reasons stand.
_EVENTS = {"queued", "started", "paused", "stopped", "skipped"}
_OF_A_STATE = re.compile(r"""\.(event|reason|recorded)\b|["'](event|reason)["']""")


def test_only_runs_compares_names_of_events_and_reasons() -> None:
    """Others ask a `RunState`: whoever compares names classifies. A rank names its own failure."""
    for path in modules(*PARTS):
        if path.parts[0] == "runs":
            continue
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Compare | ast.Tuple | ast.List | ast.Set):
                continue
            parts = ast.walk(node) if isinstance(node, ast.Compare) else node.elts
            texts = {one.value for one in parts if isinstance(one, ast.Constant)}
            # Also the names of fields, and of a value.
            names = {text for text in texts if isinstance(text, str)} - {"event", "reason", "nan"}
            assert not names & _EVENTS, f"{path}:{node.lineno}"
            is_of_a_state = path.parts[0] != "train" and _OF_A_STATE.search(ast.unparse(node))
            assert not (is_of_a_state and names & known_names()), f"{path}:{node.lineno}"


@cache
def known_names() -> set[str]:
    return {*EVENTS, *reasons()}


def test_no_room_is_crowded() -> None:
    rooms = {path.parent for path in modules(*PARTS)}
    crowded = {str(room): len(list(room.glob("*.py"))) for room in rooms}
    assert {room: count for room, count in crowded.items() if count > MOST_MODULES} == {}


def test_a_public_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules(*PARTS):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("module", ["analysis", "launch", "runs"])
def test_help_is_given_without_loading_torch(module: str) -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['x', '--help']\n"
        f"try: runpy.run_module({module!r}, run_name='__main__', alter_sys=False)\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Files of the checkout, of the kernel and of a process of ours, which no other user can replace.
_OWN_FILES = {
    "analysis/report/html.py",
    "configs/checks/compute_node.py",
    "launch/doctor/measurements.py",
    "launch/doctor/probe_jobs.py",
    "launch/slurm/flags.py",
    "launch/submit/local.py",
    "runs/attempt/gpu_sampler.py",
    "runs/state/reasons.py",
    "launch/submit/snapshot.py",
}


def test_no_module_lists_names_of_keys_outside_of_the_schema() -> None:
    # Such a list forgets every new key: derive it from `tagged`, or from another fact of `key`.
    names = {name for kind in MODELS for name in keys(kind) if "." in name}
    found = [
        f"{path}:{node.lineno}"
        for path in modules(*PARTS)
        if path.parent != Path("configs/schema")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict)
        if len(constants(node) & names) > 2
    ]
    assert not found


def constants(node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> set[object]:
    """The constants of a literal; of a mapping also its keys, unless code computes its values."""
    if not isinstance(node, ast.Dict):
        return {part.value for part in node.elts if isinstance(part, ast.Constant)}
    values = {part.value for part in node.values if isinstance(part, ast.Constant)}
    return values | {part.value for part in node.keys if isinstance(part, ast.Constant) and values}


def test_files_of_runs_are_opened_by_configs_files() -> None:
    """Any other way to open one waits for the writer of a pipe, and reads a device to no end."""
    for path in modules("configs", "runs", "launch", "analysis", "train/data"):
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call) or str(path) in _OWN_FILES | {"configs/files.py"}:
                continue
            name = ast.unparse(node.func)
            modes = [*node.args, *(one.value for one in node.keywords if one.arg == "mode")]
            writes = any(
                isinstance(one, ast.Constant) and re.match("[awx]", str(one.value)) for one in modes
            )
            is_read = name.endswith((".read_text", ".read_bytes")) or (
                name.rpartition(".")[2] == "open" and name.partition(".")[0] != "os" and not writes
            )
            opened = ast.unparse(node.args[0]) if node.args else ""
            is_stream = name in ("Image.open", "tarfile.open") and opened in ("stream", "file", "")
            assert not is_read or is_stream, f"{path}:{node.lineno}: {name}({opened})"
