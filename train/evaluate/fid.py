"""The Frechet distance of sampled images from a reference (FID, Heusel et al. 2017)."""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import ConfigError, DataError
from configs.run.folder import RunFolder, is_run
from configs.run.records import RecordWriter
from train.engine.distributed import read_ranks
from train.evaluate.fid_features import frechet_distance, open_features, statistics
from train.evaluate.fid_reference import reference_statistics
from train.evaluate.npz import open_images
from train.evaluate.npz_shards import note_of

# Below it the distance is mostly bias (Chong & Forsyth 2020).
_FEW = 10_000


def main(arguments: list[str]) -> int:
    """`python -m train fid SAMPLES.npz REFERENCE --features FILE`: print the FID, and record it."""
    parser = argparse.ArgumentParser(
        prog="python -m train fid",
        description="The Frechet distance of images in an .npz from a reference: an .npz of "
        "images or of mu and sigma, a folder of images, or a pretraining run's own data. It is "
        "recorded in the run that `python -m train sample` drew the images from.",
    )
    parser.add_argument("samples", type=Path, help="an .npz of images (arr_0)")
    parser.add_argument("reference", type=Path, help=".npz, image folder or run folder")
    parser.add_argument(
        "--features",
        type=Path,
        help="the feature network: torch-fidelity's file of Inception weights, or TorchScript "
        "from uint8 [N, 3, H, W] to [N, d]",
    )
    parser.add_argument("--batch", type=int, default=64, help="images at once")
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
    if result.samples < _FEW:
        print(
            f"warning: FID of {result.samples} samples is too high by an unknown amount; the "
            f"field takes 50,000, and fewer than {_FEW:,} compare with nothing",
            file=sys.stderr,
        )
    _record(options.samples, options.reference, result)
    return 0


@dataclass(frozen=True, kw_only=True)
class Distance:
    """The distance, the number of samples, and the checksum of the feature network's file."""

    fid: float
    samples: int
    features_sha256: str


def fid(samples: Path, reference: Path, *, features_file: Path | None, batch: int = 64) -> Distance:
    """The distance of the images in an .npz from a reference."""
    images = open_images(samples)
    features = open_features(features_file, device=read_ranks().device)
    expected = reference_statistics(reference, features, side=images.shape[1], batch=batch)
    found = statistics(images.batches(batch), features, name=str(samples))
    if found.mu.shape != expected.mu.shape:
        raise ConfigError(
            f"{reference}: its statistics are of {len(expected.mu)} features, --features has "
            f"{len(found.mu)}; name the images that they are of"
        )
    distance = frechet_distance(found, expected)
    return Distance(fid=distance, samples=found.count, features_sha256=features.sha256)


def _record(samples: Path, reference: Path, result: Distance) -> None:
    """Record the distance in the run that the samples were drawn from, where that is known."""
    note = _note(samples)
    run = RunFolder(Path(str(note.get("run", ""))))
    if not note or not is_run(run.path) or not run.attempts():
        why = f"its run {run.path} is gone" if note else f"no {note_of(samples).name} beside it"
        print(f"not recorded: {samples}: {why}", file=sys.stderr)
        return
    writer = RecordWriter(run.path, attempt=run.attempts()[-1])
    writer.write(
        step=note["checkpoint"],
        images=note["images"],
        fid=result.fid,
        fid_samples=result.samples,
        fid_weights=note["weights"],
        fid_guidance=note["guidance"],
        fid_reference=str(reference.absolute()),
        fid_features_sha256=result.features_sha256,
    )
    writer.event("evaluated", step=note["checkpoint"])
    writer.close()


def _note(samples: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(note_of(samples).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
