"""Compute the Frechet distance between sampled images and a reference (FID, Heusel et al. 2017)."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import ConfigError, DataError
from configs.files import read_bytes
from configs.load import expect
from configs.schema import Pretrain
from runs.folder import RunFolder, is_run
from train.engine.distributed import read_ranks
from train.evaluate.distances import SAMPLES_PER_FEATURE, Statistics, distances
from train.evaluate.fid_features import BATCH, Features, open_features, statistics
from train.evaluate.fid_reference import reference_statistics
from train.evaluate.npz import Metadata, metadata_file, open_images

# Metadata of a file of samples that do not say how they were drawn.
_NOT_OF_DRAWING = ("run", "num", "batch", "checkpoint", "images")


def main(arguments: list[str]) -> int:
    """Carry out `ditbench train fid SAMPLES.npz REFERENCE --features FILE`."""
    parser = argparse.ArgumentParser(
        prog="ditbench train fid",
        description="Print the Frechet distance between the images in an .npz and a reference: an "
        ".npz of images or of mu and sigma, a folder of images, or the training data of a "
        "pretraining run. Record it in the run that the images were drawn from.",
    )
    parser.add_argument("samples", type=Path, help="an .npz of images (arr_0)")
    parser.add_argument("reference", type=Path, help=".npz, image folder or run folder")
    parser.add_argument(
        "--features",
        type=Path,
        help="the Inception weights of torch-fidelity; without it, the classifier of held-out "
        "digits of a run on digits",
    )
    options = parser.parse_args(arguments)
    try:
        result = fid(options.samples, options.reference, features_file=options.features)
    except DataError as error:
        raise ConfigError(str(error)) from None
    unbiased = f", {result['fid_inf']:.4f} without its bias" if "fid_inf" in result else ""
    print(f"FID {result['fid']:.4f} of {result['fid_samples']} samples{unbiased}")
    if not unbiased:
        print(
            f"warning: FID of {result['fid_samples']} samples is too high by an unknown amount; "
            f"{SAMPLES_PER_FEATURE} for each feature are needed to correct it",
            file=sys.stderr,
        )
    _record(options.samples, result)
    return 0


def fid(samples: Path, reference: Path, *, features_file: Path | None) -> dict[str, Any]:
    """Return the distances between the images in an .npz and a reference, as `compare` does.

    Without a file of features, the reference must be a run on digits, whose classifier it is.
    """
    images = open_images(samples)
    digits = None
    if features_file is None and is_run(reference):
        digits = expect(RunFolder(reference).config(), Pretrain, source=reference).data
    features = open_features(features_file, device=read_ranks().device, digits=digits)
    expected = reference_statistics(reference, features, side=images.shape[1])
    found = statistics(images.batches(BATCH), features, name=str(samples))
    facts = {k: v for k, v in _metadata(samples).items() if k not in _NOT_OF_DRAWING}
    facts["reference"] = str(reference.absolute())
    assert found.rows is not None
    return compare(found.rows, expected, features, facts=facts)


def compare(
    rows: NDArray[np.float32], expected: Statistics, features: Features, *, facts: Metadata
) -> dict[str, Any]:
    """Return the distances of features `[N, d]` as fields of a record.

    `facts` say how the images were drawn, and name the reference. The record has all `fid_facts`
    that distances must agree in to be compared.
    """
    if rows.shape[1] != len(expected.mu):
        raise ConfigError(
            f"{facts['reference']}: its statistics are of {len(expected.mu)} features, "
            f"--features has {rows.shape[1]}; give the images instead of the statistics"
        )
    # The second moment tells references apart; rounding errors change its last digits.
    second = float(expected.mu @ expected.mu + np.trace(expected.sigma))
    facts = facts | {"features": features.name, "features_sha256": features.sha256}
    facts |= {"reference_images": expected.count, "reference_second_moment": second}
    return distances(rows, expected) | {"fid_facts": facts}


def _record(samples: Path, result: dict[str, Any]) -> None:
    """Record the distances in the run that the samples were drawn from, if that run is known."""
    metadata = _metadata(samples)
    run = RunFolder(Path(str(metadata.get("run", ""))))
    if not metadata or not is_run(run.path) or not run.attempts():
        why = f"its run {run.path} is gone" if metadata else f"no {metadata_file(samples).name}"
        print(f"not recorded: {samples}: {why}", file=sys.stderr)
        return
    at = {"step": metadata["checkpoint"], "images": metadata["images"]}
    run.record_evaluation(**at, **result)


def _metadata(samples: Path) -> Metadata:
    try:
        return dict(json.loads(read_bytes(metadata_file(samples))))
    except (OSError, ValueError):
        return {}
