"""`scaling`: what more ranks bring."""

import argparse

from analysis.table import put, remark

DOC = "speedup and efficiency by number of ranks, strong or weak, with Amdahl's serial share"
EXAMPLE = "python -m analysis scaling logs/study-1120"


def options(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def act(asked: argparse.Namespace) -> int:
    """Print the curves; 1 where no two runs differ in the number of ranks only."""
    from analysis.measure.scaling import curve_dict, curves, point_row
    from analysis.read.find import read_logs

    found, remarks = curves(read_logs(asked.paths))
    rows = [point_row(curve, point) for curve in found for point in curve.points]
    put(rows, asked, json={"curves": [curve_dict(curve) for curve in found]})
    for curve in found:
        if curve.serial:
            low, high = curve.serial.low, curve.serial.high
            remark([f"{curve.kind}: serial share {curve.serial.value:.3f} [{low:.3f}, {high:.3f}]"])
        elif curve.kind == "strong":
            remark(["strong: no fit of Amdahl's law below three rank counts"])
    remark(remarks)
    return 0 if found else 1
