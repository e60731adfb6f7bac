"""`target --critical-batch`: the critical batch size, from runs to a target."""

import argparse

from analysis.measure.target_groups import samples_to_target
from analysis.read.find import read_logs
from analysis.stats.critical_batch import CriticalBatch, fit_critical_batch
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
        "best value that every run reached",
    )


def run(args: argparse.Namespace) -> int:
    """Print the fit and its data; return 1 if fewer than two batches reached the target."""
    samples, blur, remarks = samples_to_target(read_logs(args.paths), args.target)
    found = fit_critical_batch(samples, blur=blur)
    line = found if found and found.is_line else None
    rows = [
        {
            "global_batch": batch,
            "runs": len(values),
            "samples": float(values.mean()),
            "fitted": line.e_min * (1 + batch / line.b_crit.value) if line else None,
        }
        for batch, values in sorted(samples.items())
    ]
    whole = {
        **estimate_fields("b_crit", line.b_crit if line else None),
        "e_min": line.e_min if line else None,
    }
    put(rows, args, json=whole)
    remark(remarks)
    if args.json or args.csv:
        remark([_sentence(found)])
    else:
        print(f"\n{_sentence(found)}")
    return 0 if line else 1


def _sentence(found: CriticalBatch | None) -> str:
    if found is None:
        return "critical batch size undetermined: samples must rise over two batches or more"
    if not found.is_line:
        return (
            "critical batch size undetermined: the samples do not rise along a line over the "
            "batch, so there is no single one"
        )
    ends = "no interval: two batches, each run once"
    if found.b_crit.low is not None:
        high = "inf" if found.b_crit.high is None else f"{found.b_crit.high:.0f}"
        ends = f"[{found.b_crit.low:.0f}, {high}]"
    return f"critical batch size {found.b_crit.value:.0f} {ends}, E_min {found.e_min:.6g}"
