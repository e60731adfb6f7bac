"""`cbs`: the critical batch size, from a table of runs or from runs to a target."""

import argparse
from typing import TYPE_CHECKING

from analysis.table import put, remark

if TYPE_CHECKING:
    from analysis.stats.intervals import Floats

DOC = "critical batch size from a csv with the columns global_batch,samples, or from runs"
EXAMPLE = 'python -m analysis cbs logs/branches-1120 --target "validation_loss<=0.5"'


def options(sub: argparse.ArgumentParser) -> None:
    """The target, where runs are named."""
    sub.add_argument(
        "--target",
        metavar='NAME|"NAME<=VALUE"',
        help="of runs: a metric of the records and the value to reach, <= or >=; of a name alone "
        "the lowest value that every run reached",
    )


def act(asked: argparse.Namespace) -> int:
    """Print the fit and what it fits; 1 where two batches that reached the target are missing."""
    from analysis.stats.critical_batch import fit_critical_batch

    samples, remarks = _samples(asked)
    found = fit_critical_batch(samples)
    rows = [
        {
            "global_batch": batch,
            "runs": len(values),
            "samples": float(values.mean()),
            "fitted": found.e_min * (1 + batch / found.b_crit.value) if found else None,
        }
        for batch, values in sorted(samples.items())
    ]
    whole = {
        "b_crit": found.b_crit.value if found else None,
        "b_crit_low": found.b_crit.low if found else None,
        "b_crit_high": found.b_crit.high if found else None,
        "e_min": found.e_min if found else None,
    }
    put(rows, asked, json=whole)
    asked.rows = [whole]
    remark(remarks)
    if not found:
        remark(["undetermined: samples must rise over two batches or more"])
        return 1
    ends = "no interval: two batches, each run once"
    if found.b_crit.low is not None:
        high = "inf" if found.b_crit.high is None else f"{found.b_crit.high:.0f}"
        ends = f"[{found.b_crit.low:.0f}, {high}]"
    said = f"critical batch size {found.b_crit.value:.0f} {ends}, E_min {found.e_min:.6g}"
    if asked.json or asked.csv:
        remark([said])
    else:
        print(f"\n{said}")
    return 0


def _samples(asked: argparse.Namespace) -> "tuple[dict[int, Floats], list[str]]":
    """Samples to the target by global batch, and what is to be said of them."""
    from pathlib import Path

    from analysis.measure.time_to_target import read_sample_tables, samples_to_target
    from analysis.read.find import read_logs
    from configs.errors import Unreadable

    tables = [path for path in map(Path, asked.paths) if path.suffix == ".csv"]
    if tables and len(tables) < len(asked.paths):
        raise Unreadable(f"{tables[0]}: a table, beside other paths: name tables or runs")
    if tables:
        return read_sample_tables(tables), []
    if asked.target is None:
        for path in map(Path, asked.paths):
            if not path.exists():
                raise Unreadable(f"{path}: no such file or folder")
        raise Unreadable(
            '--target: say what runs were to reach: validation_loss, or "validation_loss<=0.5"'
        )
    return samples_to_target(read_logs(asked.paths), asked.target)
