"""Fit one factor to the steps of finished runs on GPUs with a card, and keep it with the cards."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from configs.checks.batch import BatchLayout
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.schema import Pretrain
from runs.cards import Card, Fit, card_key, cards_folder, find_card
from runs.folder import RunFolder, find_runs
from runs.records import state
from train.forecast.measured import CardModel

_MOST_RUNS, _FEWEST_RUNS, _FEWEST_INTERVALS = 50, 4, 5
# A run that waits for data for this share of its time tells nothing of the device.
_MOST_WAITING = 0.05


def fit_runs(logs: Path) -> Fit:
    """Fit the newest finished runs below a folder, and replace the site's fit.

    Raise `ConfigError` for fewer than four: their spread would say nothing.
    """
    newest = sorted(find_runs(logs), key=lambda run: run.path.stat().st_mtime, reverse=True)
    found = list(itertools.islice(filter(None, map(_ratio, newest)), _MOST_RUNS))
    if len(found) < _FEWEST_RUNS:
        raise ConfigError(
            f"{logs}: {len(found)} finished runs of a DiT with {_FEWEST_INTERVALS} records after "
            f"the first, with less than {_MOST_WAITING:.0%} of the time waiting for data, on a GPU "
            f"with a card in {cards_folder()}; a fit needs {_FEWEST_RUNS}"
        )
    machines, ratios = zip(*found, strict=True)
    fit = fit_ratios(ratios, machines=machines)
    replace_file(cards_folder() / "fit.json", fit.model_dump_json(indent=1) + "\n")
    return fit


def fit_ratios(ratios: Sequence[float], *, machines: Sequence[str]) -> Fit:
    """Return the geometric mean of measured over predicted seconds, and the spread of its log."""
    logs = [math.log(ratio) for ratio in ratios]
    factor, spread = math.exp(statistics.fmean(logs)), statistics.stdev(logs)
    return Fit(factor=factor, spread=spread, runs=len(logs), machines=sorted({*machines}))


def _ratio(run: RunFolder) -> tuple[str, float] | None:
    """Return the machine of a run and its measured over predicted seconds, None if unknown."""
    try:
        config, entries, last = run.config(), run.entries(), state(run.records())
        if not isinstance(config, Pretrain) or config.model.family != "dit" or config.train.float8:
            return None
        seconds = _seconds(run) if last is not None and last["event"] == "done" else None
        if seconds is None:
            return None
        entry: dict[str, Any] = dict(entries[-1])
        device = card_key(entry["placement"][0]["gpu"])
        card = find_card(device)
        if card is None:
            return None
        return f"{device} {config.train.precision}", seconds / _predicted(config, entry, card)
    except (ConfigError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _predicted(config: Pretrain, entry: dict[str, Any], card: Card) -> float:
    layout = BatchLayout(**{each.name: entry[each.name] for each in fields(BatchLayout)})
    train = config.train.model_copy(update={"compile": entry["compile"]})
    config = config.model_copy(update={"train": train})
    model = CardModel(card, precision=train.precision, compiled=bool(train.compile))
    nodes = len({place["node"] for place in entry["placement"]})
    return model.parts(config, layout, nodes=nodes).total


def _seconds(run: RunFolder) -> float | None:
    """Return the median seconds per step of the newest attempt, between records after the first.

    Return None for too few of them, or a loader that did not keep up.
    """
    steps = [r for r in run.records() if "loss" in r and r["attempt"] == run.attempts()[-1]][1:]
    taken = [
        (b["train_s"] - a["train_s"]) / (b["step"] - a["step"])
        for a, b in itertools.pairwise(steps)
    ]
    if len(taken) < _FEWEST_INTERVALS:
        return None
    waited, trained = (steps[-1].get(n, 0) - steps[0].get(n, 0) for n in ("data_s", "train_s"))
    return statistics.median(taken) if waited < _MOST_WAITING * trained else None
