"""A row per run or arm on its loss against the first."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.measure.loss import (
    Compared,
    factor_remark,
    final_loss,
    judged_losses,
    whole_factor,
)
from analysis.measure.loss_curve import loss_curve
from analysis.read.run_log import RunLog
from analysis.verdict import ratio_text, verdict_fields
from configs.errors import Unreadable


def loss_rows(logs: Sequence[RunLog], compared: Compared) -> list[dict[str, Any]]:
    """Return a row per run but the first, with the verdict on it against the first."""
    judged = judged_losses([[log] for log in logs], compared)
    first = logs[0]
    return [
        {
            "a": first.name,
            "b": log.name,
            "loss_a": final_loss(first, of=compared.of),
            "loss_b": final_loss(log, of=compared.of),
            **verdict_fields(found, compared.quantity, base=first.name, arm=log.name),
        }
        for log, found in zip(logs[1:], judged[1:], strict=True)
    ]


def display_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for people."""
    ratio = ratio_text(row["ratio"], row["low"], row["high"])
    return {name: row[name] for name in ("a", "b", "loss_a", "loss_b")} | {
        "ratio": ratio, "loss verdict": row["word"],
    }  # fmt: skip


def factor_remarks(logs: Sequence[RunLog], compared: Compared) -> list[str]:
    """Return a sentence on each run whose loss is a whole multiple of the first one's."""
    found = []
    for log in logs[1:]:
        try:
            curves = [loss_curve(one, by=compared.by, of=compared.of) for one in (logs[0], log)]
        except Unreadable:
            continue
        if factor := whole_factor(*curves):
            found.append(factor_remark(logs[0], log, factor))
    return found
