"""The job of the report writes the tables of a study beside its page."""

from pathlib import Path

from tests.analysis.synthetic_runs import SyntheticRun, generate_run
from tests.real_runs import clean_environment, finished


def test_the_tables_of_a_study_replace_links_and_do_not_follow_them(tmp_path: Path) -> None:
    study = tmp_path / "study"
    for rate in (4, 8):
        cell = study / "cells" / f"w{rate}"
        generate_run(cell, SyntheticRun(steps_per_s=rate, overrides=(f"data.workers={rate}",)))
    (tmp_path / "mine").write_text("precious")
    for name in ("cells.txt", "ablation.txt", "report.html"):
        (study / name).symlink_to(tmp_path / "mine")
    done = finished("bash", "jobs/report.sbatch", study, env=clean_environment())
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine").read_text() == "precious"
    assert "same loss" in (study / "cells.txt").read_text()
    assert (study / "cells.txt").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in study.iterdir()} >= {"report.html", "cells.txt"}
    assert not [path for path in study.iterdir() if path.is_symlink() or path.suffix == ".tmp"]
