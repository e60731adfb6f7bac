"""`cbs`: the critical batch size, from a table or from runs to a target."""

import argparse
from pathlib import Path

from analysis.measure.time_to_target import read_sample_tables, samples_to_target
from analysis.read.find import read_logs
from analysis.stats.critical_batch import fit_critical_batch
from analysis.stats.intervals import Floats, estimate_fields
from analysis.table import put, remark
from configs.errors import Unreadable

EXAMPLE = 'ditbench cbs logs/branches-1120 --target "validation_loss<=0.5"'


def options(parser: argparse.ArgumentParser) -> None:
    """Add the target that runs have to reach."""
    parser.add_argument(
        "--target",
        metavar='NAME|"NAME<=VALUE"',
        help="for runs: a metric of the records and the value to reach, <= or >=; for a name alone "
        "the lowest value that every run reached",
    )


def run(args: argparse.Namespace) -> int:
    """Print the fit and its data; return 1 if fewer than two batches reached the target."""
    samples, remarks = _samples(args)
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
        **estimate_fields("b_crit", found.b_crit if found else None),
        "e_min": found.e_min if found else None,
    }
    put(rows, args, json=whole)
    args.rows = [whole]
    remark(remarks)
    if not found:
        remark(["undetermined: samples must rise over two batches or more"])
        return 1
    ends = "no interval: two batches, each run once"
    if found.b_crit.low is not None:
        high = "inf" if found.b_crit.high is None else f"{found.b_crit.high:.0f}"
        ends = f"[{found.b_crit.low:.0f}, {high}]"
    line = f"critical batch size {found.b_crit.value:.0f} {ends}, E_min {found.e_min:.6g}"
    if args.json or args.csv:
        remark([line])
    else:
        print(f"\n{line}")
    return 0


def _samples(args: argparse.Namespace) -> tuple[dict[int, Floats], list[str]]:
    """Return samples to the target by global batch, and remarks."""
    tables = [path for path in map(Path, args.paths) if path.suffix == ".csv"]
    if tables and len(tables) < len(args.paths):
        raise Unreadable(f"{tables[0]}: a table beside other paths: name tables or runs, not both")
    if tables:
        return read_sample_tables(tables), []
    if args.target is None:
        for path in map(Path, args.paths):
            if not path.exists():
                raise Unreadable(f"{path}: no such file or folder")
        raise Unreadable(
            '--target: name what runs have to reach: validation_loss, or "validation_loss<=0.5"'
        )
    return samples_to_target(read_logs(args.paths), args.target)
