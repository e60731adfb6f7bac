"""Score the samples of a run on digits: the share that a classifier recognises, and their variance.

The classifier is trained on the held-out digits, so it has seen none of the digits that the
network was trained on. Its accuracy on the training digits shows how good it is.
"""

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from configs.errors import ConfigError
from configs.load import expect
from configs.schema import Pretrain, Sampling
from configs.schema.data import Data
from runs.folder import RunFolder, open_run
from train.data.catalog import open_source
from train.data.source import Source, held_out_split, training_split
from train.engine.distributed import process_group, read_ranks
from train.evaluate.sampler import RunSampler


def main(arguments: list[str]) -> int:
    """Carry out `ditbench train score RUN`: print the score of a run's samples and record it."""
    parser = argparse.ArgumentParser(
        prog="ditbench train score", description="Score the samples of a run on digits."
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--per-class", type=int, default=50, help="samples of each digit")
    options = parser.parse_args(arguments)
    if options.per_class < 2:
        raise ConfigError("--per-class: a variance needs at least 2 samples")
    result = score(open_run(options.run), per_class=options.per_class)
    print(
        "{samples} samples after {step} steps: {recognised:.1%} recognised by a classifier trained "
        "on held-out digits (its accuracy on real digits is {classifier:.1%}), within-class "
        "variance {variance:.2f} of that of real digits".format(**result)
    )
    return 0


def score(run: RunFolder, *, per_class: int, seed: int = 1) -> dict[str, Any]:
    """Draw `per_class` digits of each class from the newest checkpoint; score and record them.

    `recognised` is the share of samples that the classifier gives the label they were drawn for,
    `classifier` its accuracy on the training digits. `variance` is the within-class variance of
    the samples over that of the real digits, each the trace of the covariance averaged over the
    classes.
    """
    config = expect(run.config(), Pretrain, source=run.path)
    if config.data.source != "digits" or config.data.held_out == 0:
        raise ConfigError(
            f"{run.path}: only runs on data.source digits with data.held_out > 0 can be scored"
        )
    count = per_class * config.data.classes
    drawing = Sampling(run=str(run.path), num=count, labels="turn", seed=seed)
    ranks = read_ranks()
    with process_group(ranks):
        sampler = RunSampler(drawing, device=ranks.device)
        found = sampler.load(None)
        pixels = sampler.draw(list(range(count)))[..., 0]
    digits, samples = pixels.reshape(count, -1) / 127.5 - 1, sampler.labels()
    trained = _examples(training_split(open_source(config.data), config.data))
    classifier, _ = digit_classifier(config.data)
    result = {
        "step": found["checkpoint"],
        "images": found["images"],
        "samples": count,
        "recognised": float(classifier.score(digits, samples)),
        "classifier": float(classifier.score(*trained)),
        "variance": _within_class(digits, samples) / _within_class(*trained),
    }
    run.record_evaluation(**result)
    return result


def digit_classifier(data: Data) -> tuple[SVC, str]:
    """Return a classifier of digits `[n, 64]` in -1..1, and the checksum of its training data.

    It is trained on the held-out digits by libsvm, which has one thread and draws no numbers.
    """
    images, labels = _examples(held_out_split(open_source(data), data))
    sha256 = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    return SVC(C=10, decision_function_shape="ovo").fit(images, labels), sha256


def _examples(source: Source) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    pairs = [source[index] for index in range(len(source))]
    return np.stack([image.ravel() for image, _ in pairs]), np.array([label for _, label in pairs])


def _within_class(images: NDArray[np.floating[Any]], labels: NDArray[np.int64]) -> float:
    return float(np.mean([images[labels == k].var(axis=0).sum() for k in np.unique(labels)]))
