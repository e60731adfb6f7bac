"""`time-to-target`: time to a target, and the critical batch size that follows."""

import argparse

from analysis.table import put, remark

DOC = "time to a target loss or evaluation, by devices and batch, and the critical batch size"
EXAMPLE = 'python -m analysis time-to-target logs/study-1120 --target "loss<=0.25"'


def options(sub: argparse.ArgumentParser) -> None:
    """The target."""
    sub.add_argument(
        "--target",
        required=True,
        metavar='"NAME<=VALUE"',
        help="a metric of the records and the value to reach, <= or >=",
    )


def act(asked: argparse.Namespace) -> int:
    """Print the groups; 1 where no run reached the target."""
    import numpy as np

    from analysis.measure.time_to_target import group_row, group_runs, parse_target, time_to_target
    from analysis.read.find import read_logs
    from analysis.stats.critical_batch import fit_critical_batch
    from configs.errors import Unreadable

    try:
        target = parse_target(asked.target)
    except ValueError as error:
        raise Unreadable(f"--target {error}") from None
    logs, left = [], []
    for log in read_logs(asked.paths):
        try:
            time_to_target(log, target)
            logs.append(log)
        except Unreadable as error:
            left.append(str(error))
    if not logs:
        raise Unreadable("\n".join(left))
    found = group_runs(logs, target)
    rows = [group_row(found[0], group) for group in found]
    samples: dict[int, list[float]] = {}
    for group in found:
        samples.setdefault(group.global_batch or 0, []).extend(a.images for a in group.reached)
    fit = fit_critical_batch({size: np.array(seen) for size, seen in samples.items() if size})
    critical = fit.b_crit if fit else None
    whole = {
        "groups": rows,
        "b_crit": critical.value if critical else None,
        "b_crit_low": critical.low if critical else None,
        "b_crit_high": critical.high if critical else None,
    }
    put(rows, asked, json=whole)
    if critical:
        ends = (
            "" if critical.low is None else f" [{critical.low:.0f}, {critical.high or np.inf:.0f}]"
        )
        remark([f"critical batch size {critical.value:.0f}{ends}"])
    remark(f"left out: {why}" for why in left)
    remark(f"{name}: never reached {asked.target}" for group in found for name in group.missed)
    return 0 if any(group.reached for group in found) else 1
