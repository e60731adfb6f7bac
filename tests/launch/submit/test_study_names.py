"""Names of studies, folders and values reach every shell and directive quoted."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.errors import ConfigError
from configs.grid.cells import make_cells
from configs.grid.study_file import Grid
from configs.schema import Study
from launch.plan.study import make_plan
from launch.slurm import executor
from launch.slurm.executor import BatchScript
from launch.slurm.flags import parse_flags
from launch.submit.script import RunRequest, batch_script, report_script
from launch.submit.site import Site
from launch.submit.snapshot import Tree
from runs.study_folder import StudyFolder
from tests.launch.conftest import DIGITS
from tests.launch.submit.test_script import HOSTILE, executed
from tests.real_runs import finished

NAMES = st.sampled_from([*HOSTILE, "new\nline", "a\\b", "a\tb", "'", "$'\\n'", "a\x1bb", "; id #"])
TEXTS = st.builds(
    "".join,
    st.lists(NAMES | st.text(st.characters(codec="utf-8", exclude_characters="/\0")), max_size=4),
).filter(lambda text: text.strip(". ") != "")


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names that a user can choose."""

    study: str
    logs: str
    label: str
    gpu: str
    question: str


ALL = st.builds(Names, study=TEXTS, logs=TEXTS, label=TEXTS, gpu=TEXTS, question=TEXTS)


def scripts(names: Names) -> Iterator[BatchScript]:
    """Yield the scripts of the run and the report; raise `ConfigError` for an invalid name."""
    logs = Path("/logs") / names.logs
    study = Study(
        base=str(DIGITS),
        question=names.question,
        axes={"axis": {names.label: {"resources.gpu": names.gpu}}},
    )
    source = Path("/studies", f"{names.study[:150]}.yaml")
    grid = Grid(study=study, source=source, cells=make_cells(study, {}, source="x"))
    plan = make_plan(grid, with_forecast=False)
    flags = parse_flags([f"--gpus-per-node={names.gpu}:1"], source="site")
    site = Site(name="local", logs=logs, umask="077", venv=Path("/venv"), container="", flags=flags)
    if not str(logs).isprintable() or "\\" in str(logs):
        raise ConfigError("refused by check_site")
    tree, folder = Tree(digest="TREE", files=[]), StudyFolder(logs / f"{source.stem}-1")
    ((name, cell),) = plan.cells.items()
    request = RunRequest(
        source=source, overrides=[], config=cell.config, resumes=None, identity=name,
        site=site, tree=tree, flags={}, study=folder,
    )  # fmt: skip
    yield batch_script(request, request.run)
    yield report_script(folder, after=["7"], site=site, tree=tree, extra={})


def check(names: Names, folder: Path) -> bool:
    """Return whether the study can be submitted; if so, check its scripts."""
    try:
        found_scripts = list(scripts(names))
    except ConfigError:
        return False
    for script in found_scripts:
        text = executor.sbatch_text(script)
        head, _, body = text.partition("# setup")
        lines = head.splitlines()[3:-1]
        words = [shlex.split(line.removeprefix("#SBATCH ")) for line in lines]
        assert all(line.startswith("#SBATCH --") for line in lines)
        assert all(len(word) == 1 for word in words)
        found = dict(word[0][2:].partition("=")[::2] for word in words)
        flags = {name: "" if value is True else value for name, value in script.flags.items()}
        assert {name: found[name] for name in flags} == flags
        assert set(found) - set(flags) <= {"signal", "time", "job-name", "nodes"}
        assert "#SBATCH" not in [line[:7] for line in body.splitlines()]
        assert executed(text, folder) == script.command
    assert not (folder / "hacked").exists()
    return True


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(names=ALL)
def test_hostile_names_are_inert(names: Names, tmp_path: Path) -> None:
    check(names, tmp_path)


def test_the_local_loop_reads_names_from_a_list(tmp_path: Path) -> None:
    """Cells are lines of a file, never words of a command."""
    study = tmp_path / "a b $(touch hacked)"
    for folder in ("jobs", "env"):
        (tmp_path / "tree" / folder).mkdir(parents=True)
    jobs = tmp_path / "tree" / "jobs"
    (jobs / "cells.sh").write_text(Path("jobs/cells.sh").read_text())
    (jobs / "x.sbatch").write_text('printf "%s\\n" "$1" >>"$OUT"; exit 3\n')
    study.mkdir()
    (study / "study.yaml").write_text("report: false\n")
    (study / "list").write_text("one\ntwo\n")
    out = tmp_path / "out"

    def printed() -> str:
        words = ("bash", jobs / "cells.sh", study, "x", study / "list")
        return finished(*words, cwd=tmp_path, env={"OUT": str(out), "PATH": "/usr/bin:/bin"}).stdout

    assert printed() == "one: exit 3\ntwo: exit 3\n"
    assert out.read_text() == f"{study}/cells/one\n{study}/cells/two\n"
    (jobs / "x.sbatch").write_text('echo "$1 $DITBENCH_TURN"\n')
    (study / "list").write_text("one 1120-093000-1a2b:200\ntwo 1120-093000-1a2b:200\n")
    assert printed() == "".join(
        f"{study}/cells/{cell} 1120-093000-1a2b:200\n" for cell in ("one", "two")
    )
    (study / "STOP").touch()
    assert printed() == "stopped before one\n"
    assert not list(tmp_path.rglob("hacked"))
