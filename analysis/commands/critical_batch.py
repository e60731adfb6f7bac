"""`target --critical-batch`: the critical batch size, from runs to a target."""

import argparse

from analysis.measure.time_to_target import samples_to_target
from analysis.read.find import read_logs
from analysis.stats.critical_batch import fit_critical_batch
from analysis.stats.intervals import estimate_fields
from analysis.table import put, remark

EXAMPLE = 'ditbench target logs/branches-1120 --critical-batch --target "validation_loss<=0.5"'


def options(parser: argparse.ArgumentParser) -> None:
    """Add the target that runs have to reach."""
    parser.add_argument(
        "--target",
        required=True,
        metavar='NAME|"NAME<=VALUE"',
        help="a metric of the records and the value to reach, <= or >=; for a name alone the "
        "lowest value that every run reached",
    )


def run(args: argparse.Namespace) -> int:
    """Print the fit and its data; return 1 if fewer than two batches reached the target."""
    samples, remarks = samples_to_target(read_logs(args.paths), args.target)
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
        **estimate_fields("b_crit", found.b_crit if found and found.is_line else None),
        "e_min": found.e_min if found else None,
    }
    put(rows, args, json=whole)
    args.rows = [whole]
    remark(remarks)
    if found and not found.is_line:
        remark([
            "undetermined: the samples do not rise along a line over the batch, so there is no "
            "single critical batch size"
        ])  # fmt: skip
        return 1
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
