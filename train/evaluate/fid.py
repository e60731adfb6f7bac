"""Compute the Frechet distance between sampled images and a reference (FID, Heusel et al. 2017)."""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError, DataError
from configs.run.folder import RunFolder, is_run
from train.engine.distributed import read_ranks
from train.evaluate.fid_features import frechet_distance, open_features, statistics
from train.evaluate.fid_reference import reference_statistics
from train.evaluate.npz import Metadata, metadata_file, open_images

# With fewer samples the distance is mostly bias (Chong & Forsyth 2020).
_MIN_SAMPLES = 10_000


def main(arguments: list[str]) -> int:
    """Carry out `ditbench train fid SAMPLES.npz REFERENCE --features FILE`."""
    parser = argparse.ArgumentParser(
        prog="ditbench train fid",
        description="Print the Frechet distance between the images in an .npz and a reference: an "
        ".npz of images or of mu and sigma, a folder of images, or the training data of a "
        "pretraining run. Record it in the run that `ditbench train sample` drew from.",
    )
    parser.add_argument("samples", type=Path, help="an .npz of images (arr_0)")
    parser.add_argument("reference", type=Path, help=".npz, image folder or run folder")
    parser.add_argument(
        "--features",
        type=Path,
        help="the feature network: the Inception weights of torch-fidelity, or a TorchScript file "
        "that maps uint8 [N, 3, H, W] to [N, d]",
    )
    parser.add_argument("--batch", type=int, default=64, help="images per batch (default: 64)")
    options = parser.parse_args(arguments)
    if options.batch < 1:
        raise ConfigError(f"--batch {options.batch}: expected 1 or more")
    try:
        result = fid(
            options.samples,
            options.reference,
            features_file=options.features,
            batch=options.batch,
        )
    except DataError as error:
        raise ConfigError(str(error)) from None
    print(
        f"FID {result.fid:.4f} of {result.samples} samples, reference {options.reference}, "
        f"features {result.features_sha256[:12]}"
    )
    if result.samples < _MIN_SAMPLES:
        print(
            f"warning: FID of {result.samples} samples is too high by an unknown amount; 50,000 "
            f"samples are usual, and results of fewer than {_MIN_SAMPLES:,} are not comparable",
            file=sys.stderr,
        )
    _record(options.samples, options.reference, result)
    return 0


@dataclass(frozen=True, kw_only=True)
class Distance:
    """A FID, the number of samples, and the checksum of the feature network's file."""

    fid: float
    samples: int
    features_sha256: str


def fid(samples: Path, reference: Path, *, features_file: Path | None, batch: int = 64) -> Distance:
    """Return the distance between the images in an .npz and a reference."""
    images = open_images(samples)
    features = open_features(features_file, device=read_ranks().device)
    expected = reference_statistics(reference, features, side=images.shape[1], batch=batch)
    found = statistics(images.batches(batch), features, name=str(samples))
    if found.mu.shape != expected.mu.shape:
        raise ConfigError(
            f"{reference}: its statistics are of {len(expected.mu)} features, --features has "
            f"{len(found.mu)}; give the images instead of the statistics"
        )
    distance = frechet_distance(found, expected)
    return Distance(fid=distance, samples=found.count, features_sha256=features.sha256)


def _record(samples: Path, reference: Path, result: Distance) -> None:
    """Record the distance in the run that the samples were drawn from, if that run is known."""
    metadata = _metadata(samples)
    run = RunFolder(Path(str(metadata.get("run", ""))))
    if not metadata or not is_run(run.path) or not run.attempts():
        why = f"its run {run.path} is gone" if metadata else f"no {metadata_file(samples).name}"
        print(f"not recorded: {samples}: {why}", file=sys.stderr)
        return
    run.record_evaluation(
        step=metadata["checkpoint"],
        images=metadata["images"],
        fid=result.fid,
        fid_samples=result.samples,
        fid_weights=metadata["weights"],
        fid_guidance=metadata["guidance"],
        fid_reference=str(reference.absolute()),
        fid_features_sha256=result.features_sha256,
    )


def _metadata(samples: Path) -> Metadata:
    try:
        return dict(json.loads(metadata_file(samples).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
