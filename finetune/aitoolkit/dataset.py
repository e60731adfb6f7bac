"""The captioned images as ai-toolkit is to see them: in the run's folder, triggers filled in.

It keeps its caches inside the folder that it is given, which may be read-only or shared.
"""

from pathlib import Path

from configs.checks.captions import pairs
from configs.checks.prompts import filled, read_text
from configs.disk import replace_file
from configs.schema import Finetune


def lay_out_dataset(config: Finetune, folder: Path) -> None:
    """Fill `folder` with links to the images and with their captions; again is harmless."""
    assert config.data.folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    for pair in pairs(Path(config.data.folder)):
        link = folder / pair.image.name
        if not link.is_symlink():
            link.symlink_to(pair.image.absolute())
        caption = filled(read_text(pair.caption), config.data.trigger)
        # Its caches go by the captions' times.
        if not (folder / pair.caption.name).is_file():
            replace_file(folder / pair.caption.name, caption + "\n")
