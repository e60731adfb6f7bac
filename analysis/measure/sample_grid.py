"""Grids of the samples of fine-tuning runs: a row per run, a column per step."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

from analysis.measure.finetune import device, planned_steps
from analysis.read.run_log import RunLog
from configs.run.folder import RunFolder

TILE, LABEL, HEAD = 160, 220, 18
MAX_STEPS, MAX_PROMPTS = 12, 8
# Keys that must be equal for two images to differ by device and step alone.
ALIKE = (
    "sample.prompts", "sample.prompts_file", "sample.seed", "sample.width", "sample.height",
    "sample.steps", "sample.guidance", "data.trigger", "flux.folder", "flux.variant",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SampleRow:
    """One run's samples of one prompt, files by step."""

    label: str
    files: dict[int, Path]


@dataclass(frozen=True, kw_only=True)
class SampleGrid:
    """The samples of one prompt: a row per run, `steps` as columns."""

    prompt: int
    text: str
    steps: tuple[int, ...]
    rows: tuple[SampleRow, ...]


@dataclass(frozen=True, kw_only=True)
class SampleGrids:
    """A grid per prompt, and a sentence on each run that is not shown."""

    grids: tuple[SampleGrid, ...] = ()
    refusals: tuple[str, ...] = ()


def sample_grids(logs: Sequence[RunLog]) -> SampleGrids:
    """Return the grids of runs that sampled the same prompts with the first run's settings.

    A run with other settings is left out with the reason. A cell without an image stays empty, so
    a row never shows another run's image.
    """
    shown: list[RunLog] = []
    refusals = []
    for log in logs:
        unlike = _unlike(shown[0], log) if shown else []
        if unlike:
            refusals.append(
                f"{log.name} is not in the grid: it differs from {shown[0].name} in "
                f"{', '.join(unlike)}"
            )
        elif not _steps(log, 0):
            refusals.append(f"{log.name} is not in the grid: it has no samples")
        elif foreign := _foreign_image(log):
            refusals.append(f"{log.name} is not in the grid: {foreign}")
        else:
            shown.append(log)
    if not shown:
        return SampleGrids(refusals=tuple(refusals))
    ordered = sorted(shown, key=lambda log: (str(device(log)), planned_steps(log) or 0, log.name))
    numbers = [number for number in range(MAX_PROMPTS) if _steps(shown[0], number)]
    return SampleGrids(grids=tuple(_grid(ordered, n) for n in numbers), refusals=tuple(refusals))


def _unlike(a: RunLog, b: RunLog) -> list[str]:
    one, other = a.config or {}, b.config or {}
    return [name for name in ALIKE if one.get(name) != other.get(name)]


def _foreign_image(log: RunLog) -> str | None:
    """Return a sentence on an image in a run's folder whose metadata name another run."""
    for prompt in range(MAX_PROMPTS):
        for file in _steps(log, prompt).values():
            drawn_by = _metadata(file).get("run", log.path.name)
            if drawn_by != log.path.name:
                return f"{file.parent.name}/{file.name} was drawn by {drawn_by}"
    return None


def _metadata(file: Path) -> dict[str, object]:
    """Return an image's metadata, or nothing if it cannot be read."""
    try:
        with Image.open(file) as image:
            image.load()
            return {str(name): value for name, value in image.info.items()}
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return {}


def _steps(log: RunLog, prompt: int) -> dict[int, Path]:
    folder = RunFolder(log.path).prompt_sample(prompt, 0).parent
    files = folder.glob("step-*.png") if folder.is_dir() else iter(())
    steps = {file: file.stem.removeprefix("step-") for file in files}
    return {int(step): file for file, step in sorted(steps.items()) if step.isdigit()}


def _grid(logs: Sequence[RunLog], prompt: int) -> SampleGrid:
    rows = tuple(
        SampleRow(
            label=f"{device(log)}, {planned_steps(log)} steps\n{log.name}",
            files=_steps(log, prompt),
        )
        for log in logs
    )
    listed = (logs[0].config or {}).get("sample.prompts") or []
    text = str(listed[prompt]) if prompt < len(listed) else f"prompt {prompt}"
    return SampleGrid(prompt=prompt, text=text, steps=_columns(rows), rows=rows)


def _columns(rows: Sequence[SampleRow]) -> tuple[int, ...]:
    """Return the steps of all runs, thinned to `MAX_STEPS` including the first and the last."""
    every = sorted({step for row in rows for step in row.files})
    if len(every) <= MAX_STEPS:
        return tuple(every)
    return tuple(every[round(n * (len(every) - 1) / (MAX_STEPS - 1))] for n in range(MAX_STEPS))


def render_png(grid: SampleGrid) -> bytes:
    """Return the grid as a PNG, with labels for runs and steps."""
    width = LABEL + TILE * len(grid.steps)
    canvas = Image.new("RGB", (width, HEAD + TILE * len(grid.rows)), "white")
    draw = ImageDraw.Draw(canvas)
    for column, step in enumerate(grid.steps):
        draw.text((LABEL + TILE * column + 4, 3), f"step {step}", fill="black")
    for number, row in enumerate(grid.rows):
        top = HEAD + TILE * number
        draw.multiline_text((4, top + 4), _wrap(row.label), fill="black")
        for column, step in enumerate(grid.steps):
            tile = _tile(row.files.get(step))
            if tile is not None:
                canvas.paste(tile, (LABEL + TILE * column + 1, top + 1))
    out = io.BytesIO()
    canvas.save(out, format="PNG", optimize=True)
    return out.getvalue()


def _wrap(label: str, *, width: int = 34) -> str:
    lines = [line[n : n + width] for line in label.splitlines() for n in range(0, len(line), width)]
    return "\n".join(lines)


def _tile(file: Path | None) -> Image.Image | None:
    if file is None:
        return None
    try:
        with Image.open(file) as image:
            return ImageOps.contain(image.convert("RGB"), (TILE - 2, TILE - 2))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
