"""How good a run's samples of digits are: recognised by a classifier, and as varied as real ones.

The classifier is trained on the digits that were held out, so it has seen none of those that
the network was trained on; the training digits tell how good it is.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.svm import SVC

from configs.errors import ConfigError
from configs.load import expect
from configs.run.folder import RunFolder, open_run
from configs.run.records import RecordWriter
from configs.schema import Pretrain
from train.data.catalog import open_source
from train.data.source import Source, held_out_split, training_split
from train.diffusion.objective import DiffusionObjective
from train.engine.checkpoint import load_weights
from train.engine.distributed import process_group, read_ranks
from train.evaluate.sampler import SampleShare, sample
from train.model.build import build_network


def main(arguments: list[str]) -> int:
    """`python -m train score RUN`: print how good a run's samples are, and record it."""
    parser = argparse.ArgumentParser(
        prog="python -m train score", description="Judge the samples of a run on digits."
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--per-class", type=int, default=50, help="samples of each digit")
    options = parser.parse_args(arguments)
    if options.per_class < 2:
        raise ConfigError("--per-class: a variance needs at least 2 samples")
    result = score(open_run(options.run), per_class=options.per_class)
    print(
        f"{result.samples} samples after {result.step} steps: {result.recognised:.1%} recognised "
        f"by a classifier of held-out digits (which knows {result.classifier:.1%} of real ones), "
        f"within-class variance {result.variance:.2f} of the real"
    )
    return 0


@dataclass(frozen=True, kw_only=True)
class DigitsScore:
    """Shares between 0 and 1, and the ratio of variances.

    `recognised`: samples that the classifier gives their own label. `classifier`: training
    digits that it gives theirs. `variance`: within-class variance of the samples over that of
    the real digits, each the trace of the covariance averaged over the classes.
    """

    step: int
    images: int
    samples: int
    recognised: float
    classifier: float
    variance: float


def score(run: RunFolder, *, per_class: int, seed: int = 1) -> DigitsScore:
    """Draw `per_class` digits of each class from the newest checkpoint, judge and record them."""
    config = expect(run.config(), Pretrain, source=run.path)
    if config.data.source != "digits" or config.data.held_out == 0:
        raise ConfigError(
            f"{run.path}: only runs on data.source digits with data.held_out > 0 can be scored"
        )
    ranks = read_ranks()
    network = build_network(config).to(ranks.device)
    labels = torch.arange(config.data.classes).repeat_interleave(per_class)
    with process_group(ranks):
        step, images = load_weights(run.checkpoints, network)
        objective = DiffusionObjective(config, ranks.device)
        drawn = sample(
            network.eval(),
            objective,
            labels,
            config,
            place=SampleShare(),
            device=ranks.device,
            seed=seed,
        )
    assert drawn is not None
    judged = _judge(
        drawn.clamp(-1, 1).flatten(1).numpy(),
        labels.numpy(),
        trained=_table(training_split(open_source(config.data), config.data)),
        held_out=_table(held_out_split(open_source(config.data), config.data)),
    )
    result = DigitsScore(step=step, images=images, samples=len(labels), **judged)
    _record(run, result)
    return result


_Table = tuple[NDArray[np.float32], NDArray[np.int64]]


def _table(source: Source) -> _Table:
    pairs = [source[index] for index in range(len(source))]
    return np.stack([image.ravel() for image, _ in pairs]), np.array([label for _, label in pairs])


def _judge(
    drawn: NDArray[np.float32], labels: NDArray[np.int64], *, trained: _Table, held_out: _Table
) -> dict[str, float]:
    classifier = SVC(C=10).fit(*held_out)
    return {
        "recognised": float(classifier.score(drawn, labels)),
        "classifier": float(classifier.score(*trained)),
        "variance": _within_class(drawn, labels) / _within_class(*trained),
    }


def _within_class(images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    return float(np.mean([images[labels == k].var(axis=0).sum() for k in np.unique(labels)]))


def _record(run: RunFolder, result: DigitsScore) -> None:
    writer = RecordWriter(run.path, attempt=run.attempts()[-1])
    writer.write(
        step=result.step,
        images=result.images,
        samples=result.samples,
        recognised=result.recognised,
        classifier=result.classifier,
        variance=result.variance,
    )
    writer.event("evaluated", step=result.step)
    writer.close()
