"""`cells --scaling`: speedup and efficiency by number of ranks."""

import argparse

from analysis.measure.scaling import curve_dict, curves
from analysis.read.find import read_logs
from analysis.table import put, remark

EXAMPLE = "ditbench cells logs/study-1120 --scaling"


def run(args: argparse.Namespace) -> int:
    """Print the curves; return 1 if no two runs differ in the number of ranks only."""
    found, remarks = curves(read_logs(args.paths))
    rows = [row for curve in found for row in curve.rows]
    put(rows, args, json={"curves": [curve_dict(curve) for curve in found]})
    for curve in found:
        if curve.serial:
            low, high = curve.serial.low, curve.serial.high
            remark(
                [f"{curve.kind}: serial fraction {curve.serial.value:.3f} [{low:.3f}, {high:.3f}]"]
            )
        elif curve.kind == "strong":
            remark(["strong: no fit of Amdahl's law below three rank counts"])
    remark(remarks)
    return 0 if found else 1
