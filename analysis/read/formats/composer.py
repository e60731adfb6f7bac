"""Composer's console: `[batch=1/10]:`, then its metrics, indented, one a line.

With `[epoch=0][batch=1/10]:` batches are counted within an epoch, the first epoch being 0.
"""

import re
from dataclasses import replace

import numpy as np

from analysis.read.text.batch import Field, Format, RowBatch, select

BATCHES = Format(
    name="Composer batches",
    token=b"[batch=",
    pattern=re.compile(
        rb"^(?:[^\r\n]{0,99}?\[epoch=(?P<epoch>\d{1,9})(?:/\d{1,9})?\])?"
        rb"[^\r\n]{0,99}?\[batch=(?P<step>\d{1,15})/(?P<total>\d{1,15})\]:"
    ),
    fields={
        "step": Field(group="step"),
        "epoch": Field(group="epoch"),
        "total": Field(group="total"),
    },
)
COMPOSER = Format(
    name="Composer",
    token=b"loss/train/total:",
    pattern=re.compile(rb"^(?:\d{1,6}: )?\s+(?:Train )?loss/train/total:\s*(?P<loss>[-+.\w]+)"),
    fields={"loss": Field(group="loss")},
)


def with_batches(losses: RowBatch, batches: RowBatch | None) -> RowBatch | None:
    """The losses, each with the step of the batch that it stands under; None without any."""
    if batches is None:
        return None
    above = np.searchsorted(batches.place, losses.place) - 1
    kept = np.flatnonzero(above >= 0)
    if not len(kept):
        return None
    losses, above = select(losses, kept), above[kept]
    nothing = np.zeros(len(batches))
    epoch = np.nan_to_num(batches.values.get("epoch", nothing))
    before = (epoch * batches.values.get("total", nothing)).astype(np.int64)
    times = {"time": batches.values["time"][above]} if "time" in batches.values else {}
    values = losses.values | times
    return replace(losses, step=(batches.step + before)[above], values=values)
