"""The noise of the training loss relative to that of the validation loss, at the same steps.

    python -m benchmarks.validation_noise [--steps 400] [--images 256] [--strata 8] [--json]

Digits are trained with a record and a validation at every step. The noise of a curve is what
remains without its trend: the spread (1.48 times the median absolute deviation) of its second
differences over the root of 6, which is that of independent noise. The last half of the steps
counts; the interval is a bootstrap over blocks of 10 steps.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from configs.load import load, to_tree
from runs.folder import claim_attempt, make_run
from train.pretrain.run import attempt

BLOCK, DRAWS = 10, 1000
CONFIG = Path("configs/pretrain/digits.yaml")


def main(arguments: list[str]) -> int:
    """Measure and print a report."""
    options = _parser().parse_args(arguments)
    training, validation = (curve[options.steps // 2 :] for curve in curves(options))
    random = np.random.default_rng(0)
    found = noise(training) / noise(validation)
    ratios = np.sort(_bootstrap(np.diff(training, 2), np.diff(validation, 2), random))
    low, high = ratios[[round(0.025 * DRAWS), round(0.975 * DRAWS)]]
    result = {
        "noise of training loss": noise(training),
        "noise of validation loss": noise(validation),
        "ratio": found,
        "low": float(low),
        "high": float(high),
        "mean training loss": float(training.mean()),
        "steps": len(training),
    }
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        print(
            f"training loss / validation loss, noise: {found:.1f} [{low:.1f}, {high:.1f}] "
            f"over {len(training)} steps"
        )
    return 0


Curve = NDArray[np.float64]


def curves(options: argparse.Namespace) -> tuple[Curve, Curve]:
    """Train, and return the training and validation loss of every step."""
    every = ["log.every=1", "validation.every=1", "log.tensorboard=false", "sample.steps=1"]
    sizes = [f"validation.images={options.images}", f"validation.strata={options.strata}"]
    config = load(CONFIG, [f"train.steps={options.steps}", *every, *sizes])
    with (
        tempfile.TemporaryDirectory() as logs,
        contextlib.redirect_stdout(sys.stderr),
        mock.patch.dict(os.environ, {"LOGS": logs}),
    ):
        run = make_run("benchmark", to_tree(config))
        if attempt(run, number=claim_attempt(run, config)):
            raise RuntimeError("the run failed; its log is above")
        records = list(run.records())
    names = ("loss", "validation_loss")
    first, second = ([record[n] for record in records if n in record] for n in names)
    return np.array(first), np.array(second)


def noise(curve: Curve) -> float:
    """Return the standard deviation of the independent noise in a smooth curve `[n]`."""
    return _spread(np.diff(curve, 2))


def _spread(second: Curve) -> float:
    return float(1.4826 * np.median(np.abs(second)) / np.sqrt(6))


def _bootstrap(first: Curve, second: Curve, random: np.random.Generator) -> Curve:
    """Return the ratios of the noises of resampled blocks, `[DRAWS]`."""
    begins = np.arange(0, len(first) - BLOCK + 1)
    drawn = random.choice(begins, (DRAWS, len(first) // BLOCK))
    indices = (drawn[..., None] + np.arange(BLOCK)).reshape(DRAWS, -1)
    return np.array([_spread(first[at]) / _spread(second[at]) for at in indices])


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--images", type=int, default=256)
    options.add_argument("--strata", type=int, default=8)
    options.add_argument("--json", action="store_true", help="print JSON")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
