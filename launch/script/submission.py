"""The runs of a user's batch script, one or the runs of a study, and their folders.

What goes to sbatch is a wrapper with the script's own `#SBATCH` lines, which has
`runs.attempt.script` run the script. A study has a run for each combination of values.
"""

import difflib
import itertools
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from configs.errors import ConfigError
from configs.grid.cells import make_cells
from configs.grid.study_file import Grid
from configs.load import to_tree
from configs.table import Row
from configs.yaml12 import dump_yaml
from launch.lint.lint import lint
from launch.plan.result import CheckResult, checked, warning
from launch.plan.study import Plan, make_plan, table
from launch.script.edit import mark_resume, present_value, vary
from launch.script.environment import users_environment
from launch.script.request import ScriptRequest
from launch.script.start import FLAGS, START, ScriptRuns, wrapper_of
from launch.slurm import client
from launch.slurm.client import Refused
from launch.slurm.limits import lost_nodes
from launch.submit.snapshot import Repository
from launch.submit.study_cells import make_folder, record_queued, rows_with
from launch.submit.submission import bill
from runs.attempt.script import FIRST, LATER, MARK
from runs.folder import ROOT, RunFolder, make_run, new_id
from runs.study_folder import StudyFolder

# Flags by which programs are told where to write, one folder for each run.
_OUTPUTS = (
    "--output_dir", "--output-dir", "--out_dir", "--out-dir", "--outdir", "--results_dir",
    "--results-dir", "--save_dir", "--save-dir", "--work-dir", "--logdir", "--ckpt-dir",
)  # fmt: skip
_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from runs.attempt.script import main; "
    "main(*sys.argv[1:])"
)


@dataclass(frozen=True, kw_only=True)
class ScriptRun:
    """One run to submit: its folder, its text, and the variables that are exported before it."""

    path: Path
    text: str
    exports: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ScriptSubmission(ScriptRuns):
    """The new runs of a script in the order of their submission; a study has a `plan`.

    `place` is their working directory: the user's, or the same one in a copy of the repository.
    """

    request: ScriptRequest
    plan: Plan | None
    place: Path
    identity: str
    runs: list[ScriptRun]
    is_new = True

    def finished(self) -> str:
        """Return nothing: new runs are left to run."""
        return ""

    def rows(self) -> list[Row]:
        """Return a row for each run of a study."""
        return table(self.plan) if self.plan else []

    def checks(self) -> Iterator[CheckResult]:
        """Check the script by the linter, by sbatch itself, and that no run overwrites another."""
        request = self.request
        for one in lint(request.script):
            if one.rule.level == "warning":
                line = f"line {one.number}: {one.rule.explanation}"
                yield warning("script", line, one.rule.fix)
        yield checked("script", self._check_script)
        yield checked("outputs", self._check_outputs)
        if repository := request.repository:
            yield checked("snapshot", lambda: _told(repository))
        if self.choices.how != "local":
            yield checked("cluster", self._check_cluster)

    def _check_script(self) -> None:
        request = self.request
        if not request.text.startswith("#!"):
            raise ConfigError(f"{request.source}: sbatch refuses a script without #! in line 1")
        if "array" in request.options:
            raise ConfigError(
                f"{request.source}: an array of its own: every task would be one run; submit it "
                "with sbatch, or vary a value by --vary"
            )
        if "wait" in request.options:
            raise ConfigError(f"{request.source}: --wait: submit returns at once; remove it")
        path_of_copy = request.script.find(r"\bscontrol\b.*\bCommand\b")
        if path_of_copy:
            raise ConfigError(
                f"{request.source}, line {path_of_copy[0].number}: asks Slurm for the path of the "
                "script, which would be a copy; use $SLURM_SUBMIT_DIR"
            )

    def _check_outputs(self) -> list[str]:
        """Raise `ConfigError` if all runs are told one folder to write to; warn if none is told."""
        request = self.request
        if len(self.runs) == 1:
            return []
        for name in _OUTPUTS:
            try:
                told = {present_value(one.text, name, path=request.source) for one in self.runs}
            except ConfigError:
                # Not plain text, so that it may differ between the runs.
                return []
            if len(told) > 1:
                return []
            if value := told.pop():
                raise ConfigError(
                    f"{request.source}: all runs would write to {name} {value}; give each its own "
                    f"folder: --vary {name}={value}/{{run}}"
                )
        return [
            "all runs share the working directory, and no flag of the script says where it writes: "
            "files of one name overwrite each other"
        ]

    def _check_cluster(self) -> list[str]:
        """Let sbatch judge the script itself."""
        request = self.request
        words = [*request.added, *request.flags, str(request.source), *request.arguments]
        try:
            client.sbatch(
                ["--test-only", *words],
                folder=Path.cwd(), environment=users_environment(), umask=request.umask,
            )  # fmt: skip
        except Refused as error:
            if remarks := lost_nodes(str(error)):
                return remarks
            raise
        return []

    def bill(self) -> str:
        """Return the remarks on the order of runs, their number, and the most that they cost."""
        count = len(self.runs)
        cost = bill(count, count * self.request.config(self.place).resources.gpu_hours)
        return "\n".join([*(self.plan.remarks if self.plan else []), cost])

    def scripts(self) -> list[str]:
        """Return what is submitted: the flags that are added, and each copy as a diff."""
        request = self.request
        lines = [f"sbatch {shlex.join([*request.added, *request.flags, *self._words()])}"]
        lines += [f"added: {flag}" for flag in request.added] or ["added: no flag"]
        for run in self.runs:
            own = request.text.splitlines(keepends=True)
            texts = [run.text] if request.resume is None else [self._marked(run.text)]
            diff = difflib.unified_diff(own, texts[0].splitlines(keepends=True), n=0)
            lines.append(f"{run.path.name}: the script as it is" if texts[0] == request.text else (
                f"{run.path.name}:\n" + "".join([*diff][2:]).rstrip("\n")
            ))  # fmt: skip
            lines += [f"export {name}={shlex.quote(value)}" for name, value in run.exports.items()]
        return [line.encode(errors="replace").decode() for line in lines]

    def yaml(self) -> str:
        """Return the study that the request becomes: submitting the file gives the same runs."""
        words = shlex.join(["--", *self.request.flags]) if self.request.flags else ""
        tree = {"kind": "study", "base": str(self.request.source.absolute())}
        own = {"set", "axes", "repeats"}
        tree |= self.request.study.model_dump(include=own, exclude_defaults=True)
        return f"# ditbench submit FILE {words}".rstrip() + "\n" + dump_yaml(tree)

    def _words(self) -> list[str]:
        return [str(self.request.source), *self.request.arguments]

    def _marked(self, text: str) -> str:
        return mark_resume(text, MARK, path=self.request.source)

    def prepare(self) -> list[RunFolder]:
        """Write the folders of the runs, with the script and its wrapper in each."""
        request, runs = self.request, []
        if self.plan is not None:
            study = StudyFolder(self.folder)
            make_folder(study, self.plan, rows_with(self.plan, []))
            runs = [RunFolder(one.path) for one in self.runs]
        else:
            tree = to_tree(request.config(self.place))
            runs = [make_run(request.source.stem, tree, identity=self.identity)]
        if request.repository is not None:
            request.repository.copy(self.folder / "code")
        for run, one in zip(runs, self.runs, strict=True):
            folder, wrapper = run.path / "script", wrapper_of(run, request.source)
            wrapper.parent.mkdir(parents=True)
            _write(folder / FIRST, one.text)
            if request.resume is not None:
                _write(folder / LATER, self._marked(one.text))
            _write(folder / FLAGS, shlex.join([*request.added, *request.flags]))
            _write(wrapper, self._wrapper(run, one.exports))
            _write(folder / START, self._start(wrapper))
            for file in (wrapper, folder / START):
                file.chmod(0o700)
            record_queued(run)
        return runs

    def _wrapper(self, run: RunFolder, exports: dict[str, str]) -> str:
        """Return what sbatch gets: the directives, and the call that runs the script."""
        start = shlex.join([sys.executable, "-I", "-c", _START, str(ROOT), str(run.path)])
        # Unlike dash, bash -p passes every variable on, also functions such as `module`.
        lines = ["#!/bin/bash -p", *_header(self.request.text)]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
        return "\n".join([*lines, f'exec {start} "$@"', ""])

    def _start(self, wrapper: Path) -> str:
        """Return the script that runs the wrapper here, in the folder where it was submitted."""
        words = shlex.join([str(wrapper), *self.request.arguments])
        return f"#!/bin/bash -p\ncd {shlex.quote(str(self.place))} && exec {words}\n"


def script_submission(request: ScriptRequest, logs: Path) -> ScriptSubmission:
    """Resolve a request without writing anything."""
    path, axes = request.source, request.axes
    identity = new_id()
    folder, place = logs / f"{path.stem}-{identity}", Path.cwd()
    if request.repository is not None:
        place = folder / "code" / place.relative_to(request.repository.root)
    make = partial(
        ScriptSubmission, choices=request.choices, umask=request.umask, request=request,
        folder=folder, place=place, identity=identity,
    )  # fmt: skip
    if not axes and request.study.repeats == 1:
        return make(
            is_study=False, plan=None, runs=[ScriptRun(path=folder, text=request.text, exports={})]
        )
    study = request.study.model_copy(update={"base": str(path.resolve()), "axes": axes})
    cells = make_cells(study, to_tree(request.config(place)), source=str(path))
    plan = make_plan(Grid(study=study, cells=cells, source=path), with_forecast=False)
    runs = []
    for one in plan.rows:
        text, exports = request.text, dict[str, str]()
        for key, level in one.levels.items():
            value = str(level).replace("{run}", f"{folder.name}-{one.cell}")
            changed = vary(text, request.names[key], value, path=path)
            text, exports = changed.text, exports | changed.exports
        runs.append(ScriptRun(path=folder / "cells" / one.cell, text=text, exports=exports))
    return make(is_study=True, plan=plan, runs=runs)


def _told(repository: Repository) -> list[str]:
    links = "".join(f"; linked, not copied: {name}" for name in repository.ignored)
    return [f"runs in a copy of {repository.root}{links}"]


def _header(text: str) -> list[str]:
    """Return the lines in which sbatch looks for flags (`#SBATCH`, `#PBS`, `#BSUB`)."""
    lines = itertools.takewhile(
        lambda line: not line.strip() or line.lstrip().startswith("#"), text.split("\n")[1:]
    )
    return [line for line in lines if line.startswith("#")]


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))
