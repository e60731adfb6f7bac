"""The folder of a lab whose batch scripts are submitted on a real Slurm."""

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from runs.folder import ROOT, RunFolder
from tests.slurm.cluster import Cluster

SCRIPTS = Path(__file__).parent / "batch_scripts"
_MODULE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import launch.__main__ as m"
# The launcher from any folder.
DITBENCH = (sys.executable, "-c", f"{_MODULE}; sys.exit(m.main())")


@dataclass(frozen=True, kw_only=True)
class Project:
    """The folder of a lab, with the launchers on its PATH."""

    cluster: Cluster
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "PYTHONPATH": "",
            "BASH_FUNC_module%%": '() {  echo "module $*"\n}',
        }

    def write(self, name: str, text: str) -> Path:
        script = self.folder / name
        script.write_bytes(text.encode(errors="surrogateescape"))
        return script

    def sbatch(self, script: Path, *words: str) -> str:
        answer = self.cluster.run(
            "sbatch", "--parsable", script.name, *words, cwd=script.parent, env=self.environment
        )
        return answer.stdout.strip()

    def ditbench(self, *words: str, check: bool = True, folder: Path | None = None) -> str:
        """Run the launcher as somebody in the folder does, and return what it prints."""
        answer = self.cluster.run(
            *DITBENCH, *words,
            cwd=folder or self.folder, env=self.environment | {"LOGS": str(self.logs)}, check=check,
        )  # fmt: skip
        return answer.stdout if check else answer.stdout + answer.stderr

    @property
    def logs(self) -> Path:
        return self.folder.parent / "logs"

    def submit(self, *words: str, folder: Path | None = None) -> tuple[RunFolder, list[str]]:
        """Submit, and return the run or study with its jobs."""
        lines = self.ditbench("submit", *words, folder=folder).splitlines()
        found = dict(line.split(": ", 1) for line in lines)
        path = found.get("run") or found["study"]
        # The jobs of a study have ids in a row: `jobs: 7 to 9 (3 runs)`.
        ids = re.findall(r"\d+", (found.get("job") or found["jobs"]).partition(" (")[0])
        return RunFolder(Path(path)), [str(n) for n in range(int(ids[0]), int(ids[-1]) + 1)]


def make_project(cluster: Cluster, folder: Path) -> Project:
    shutil.copytree(SCRIPTS, folder)
    for name in ("accelerate", "apptainer", "torchrun", "uv"):
        shutil.copy(folder / "bin" / "launcher", folder / "bin" / name)
    (folder / "logs").mkdir()
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "activate").write_text("export IN_VENV=1\n")
    return Project(cluster=cluster, folder=folder)
