"""Imports form a star around configs, and what must start fast loads no torch.

The exception is `finetune`, which imports `train.engine` (attempts, ranks, stop signals, clocks,
records, checkpoints, the watchdog) rather than hold a second copy.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = ("configs", "launch", "train", "finetune", "analysis")
ALLOWED = {"finetune": {"finetune", "train", "configs"}}


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("part", [part for part in PARTS if Path(part).is_dir()])
def test_a_part_imports_no_other_part_but_what_it_may(part: str) -> None:
    allowed = ALLOWED.get(part, {part, "configs"})
    for path in Path(part).rglob("*.py"):
        assert imported(path) & set(PARTS) <= allowed, path


def imported_modules(path: Path) -> set[str]:
    """The modules that a file imports by their full names."""
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("part", ["finetune", "train/engine"])
def test_finetune_and_the_engine_import_nothing_of_train_but_the_engine(part: str) -> None:
    for path in Path(part).rglob("*.py"):
        of_train = {name for name in imported_modules(path) if name.split(".")[0] == "train"}
        assert all(name.startswith("train.engine.") for name in of_train), (path, of_train)


def test_statistics_import_nothing_of_ours_but_statistics() -> None:
    for path in Path("analysis/stats").rglob("*.py"):
        ours = {name for name in imported_modules(path) if name.split(".")[0] in PARTS}
        assert all(name.startswith("analysis.stats.") for name in ours), (path, ours)


def test_configs_and_analysis_never_name_torch() -> None:
    for part in ("configs", "analysis"):
        for path in Path(part).rglob("*.py"):
            assert "torch" not in imported(path), path


def test_only_distributed_reads_what_torchrun_sets_and_only_slurm_env_what_slurm_sets() -> None:
    for part in PARTS:
        for path in Path(part).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if path != Path("train/engine/distributed.py"):
                assert '"WORLD_SIZE"' not in text, path
            if path != Path("configs/run/slurm_env.py") and part != "launch":
                assert '"SLURM_' not in text, path


@pytest.mark.parametrize(
    "module", [m for m in ("analysis", "launch", "configs") if Path(m).is_dir()]
)
def test_help_is_given_without_loading_torch(module: str) -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['x', '--help']\n"
        "try: runpy.run_module(sys.argv.pop(0) and MODULE, run_name='__main__', alter_sys=False)\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules\n"
    ).replace("sys.argv.pop(0) and MODULE", repr(module))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
