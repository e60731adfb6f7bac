"""A resumed fine-tuning goes on with the images and captions that it began with, or not at all."""

import hashlib
import json
from pathlib import Path

from configs.checks.captions import fill_trigger
from configs.checks.dataset import image_set
from configs.disk import replace_file
from configs.errors import ConfigError
from configs.files import read_bytes
from configs.schema import Finetune, Run
from runs.folder import RunFolder
from runs.json_files import read_json
from runs.state.fold import is_done


def record_data(run: RunFolder, config: Run) -> None:
    """Write the hashes of a fine-tuning's images with their captions, unless they are there.

    Before the first checkpoint nothing depends on the data, which may have been mended.
    """
    if isinstance(config, Finetune) and not (_step(run) and run.data_file.is_file()):
        replace_file(run.data_file, json.dumps(_hashes(config), indent=1) + "\n")


def check_same_data(run: RunFolder | None, config: Run) -> None:
    """Raise `ConfigError` if an image or a caption is not as it was when the run began."""
    if run is None or not isinstance(config, Finetune) or not run.data_file.is_file():
        return
    step = _step(run)
    if not step or is_done(run, config):
        return
    before, now = read_json(run.data_file, dict[str, str]), _hashes(config)
    changed = [file for file in {**before, **now} if before.get(file) != now.get(file)]
    if changed:
        first = Path(changed[0])
        what = "was added" if changed[0] not in before else "was removed"
        if changed[0] in before.keys() & now.keys():
            what = "or its caption has changed"
        raise ConfigError(
            f"{first} {what} ({len(changed)} of {len({**before, **now})} images) since {run.name} "
            f"began, and step {step} learnt from what was there: restore it, or start a new run "
            f"with {run.config_file}"
        )


def _step(run: RunFolder) -> int:
    """Return the step of the newest checkpoint, or 0."""
    names = [path.name for path in run.checkpoints.glob("step-*[0-9]")]
    return int(max(names, default="step-0").removeprefix("step-"))


def _hashes(config: Finetune) -> dict[str, str]:
    """Return a hash of each image with the caption that training sees, by path."""
    found = {}
    for each in [each for images in vars(image_set(config)).values() for each in images]:
        caption = fill_trigger(each.text(), config.data.trigger).encode()
        content = read_bytes(each.image) + caption
        found[str(each.image)] = hashlib.sha256(content).hexdigest()
    return found
