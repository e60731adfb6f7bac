"""The newest sample grid of a run as a small image in a `data:` URL."""

import base64
import io
import warnings
from pathlib import Path

from PIL import Image

from configs.files import open_regular

WIDEST = 360
LARGEST_FILE = 1 << 25
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def newest_grid(run: Path) -> Path | None:
    """Return the last image by name in the `samples` folder of a run."""
    folder = run / "samples"
    if not folder.is_dir():
        return None
    found = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
    return max(found, default=None)


def data_address(path: Path) -> str | None:
    """Return the image as a `data:` URL of a small PNG, or None if it cannot be decoded."""
    png = small_png(path)
    return None if png is None else f"data:image/png;base64,{base64.b64encode(png).decode()}"


def small_png(path: Path) -> bytes | None:
    """Return a PNG at most `WIDEST` pixels wide; None if the image is too large or damaged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(path, most=LARGEST_FILE) as file, Image.open(file) as image:
                small = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError):
        return None
    if small.width > WIDEST:
        height = max(1, round(small.height * WIDEST / small.width))
        small = small.resize((WIDEST, height), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    small.quantize(128).save(out, format="PNG", optimize=True)
    return out.getvalue()
