"""The samples of fine-tuning runs by device and step, one run a row and never two in one."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

from analysis.measure.finetune import device, planned_steps
from analysis.read.run_log import RunLog
from configs.run.folder import RunFolder

TILE, LABEL, HEAD = 160, 220, 18
MOST_STEPS, MOST_PROMPTS = 12, 8
# What must be the same for two images to differ by device and step alone.
ALIKE = (
    "sample.prompts", "sample.prompts_file", "sample.seed", "sample.width", "sample.height",
    "sample.steps", "sample.guidance", "data.trigger", "flux.folder", "flux.variant",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SampleRow:
    """One run's samples of one prompt: a file by step."""

    label: str
    files: dict[int, Path]


@dataclass(frozen=True, kw_only=True)
class SampleGrid:
    """The samples of one prompt, a row per run; `steps` are the columns."""

    prompt: int
    text: str
    steps: tuple[int, ...]
    rows: tuple[SampleRow, ...]


@dataclass(frozen=True, kw_only=True)
class SampleGrids:
    """A grid per prompt, and what is not shown, with the reason."""

    grids: tuple[SampleGrid, ...] = ()
    refusals: tuple[str, ...] = ()


def sample_grids(logs: Sequence[RunLog]) -> SampleGrids:
    """The grids of runs that drew the same prompts in the same way; the first says which way.

    A run that drew otherwise is left out with the reason, and a cell without an image is empty:
    no row ever takes an image of another run.
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
        elif stranger := _stranger(log):
            refusals.append(f"{log.name} is not in the grid: {stranger}")
        else:
            shown.append(log)
    if not shown:
        return SampleGrids(refusals=tuple(refusals))
    ordered = sorted(shown, key=lambda log: (str(device(log)), planned_steps(log) or 0, log.name))
    numbers = [number for number in range(MOST_PROMPTS) if _steps(shown[0], number)]
    return SampleGrids(grids=tuple(_grid(ordered, n) for n in numbers), refusals=tuple(refusals))


def _unlike(a: RunLog, b: RunLog) -> list[str]:
    return [
        name
        for name in ALIKE
        if _settled(a, name) != _settled(b, name)
    ]  # fmt: skip


def _stranger(log: RunLog) -> str | None:
    """An image in a run's folder that says itself that another run drew it."""
    for prompt in range(MOST_PROMPTS):
        for file in _steps(log, prompt).values():
            drawn_by = _opened(file).get("run", log.name)
            if drawn_by != log.name:
                return f"{file.parent.name}/{file.name} in it was drawn by {drawn_by}"
    return None


def _opened(file: Path) -> dict[str, object]:
    """What an image says of itself; nothing where it cannot be read."""
    try:
        with Image.open(file) as image:
            image.load()
            return {str(name): value for name, value in image.info.items()}
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return {}


def _settled(log: RunLog, name: str) -> object:
    return (log.config or {}).get(name)


def _steps(log: RunLog, prompt: int) -> dict[int, Path]:
    folder = RunFolder(log.path).prompt_sample(prompt, 0).parent
    files = folder.glob("step-*.png") if folder.is_dir() else iter(())
    told = {file: file.stem.removeprefix("step-") for file in files}
    return {int(step): file for file, step in sorted(told.items()) if step.isdigit()}


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
    """The steps that any run has, thinned to `MOST_STEPS` with the first and the last kept."""
    every = sorted({step for row in rows for step in row.files})
    if len(every) <= MOST_STEPS:
        return tuple(every)
    places = [round(n * (len(every) - 1) / (MOST_STEPS - 1)) for n in range(MOST_STEPS)]
    return tuple(every[place] for place in places)


def render_png(grid: SampleGrid) -> bytes:
    """The grid as a PNG: device and run beside each row, the step over each column."""
    width = LABEL + TILE * len(grid.steps)
    sheet = Image.new("RGB", (width, HEAD + TILE * len(grid.rows)), "white")
    pen = ImageDraw.Draw(sheet)
    for column, step in enumerate(grid.steps):
        pen.text((LABEL + TILE * column + 4, 3), f"step {step}", fill="black")
    for place, row in enumerate(grid.rows):
        top = HEAD + TILE * place
        pen.multiline_text((4, top + 4), _wrapped(row.label), fill="black")
        for column, step in enumerate(grid.steps):
            tile = _tile(row.files.get(step))
            if tile is not None:
                sheet.paste(tile, (LABEL + TILE * column + 1, top + 1))
    out = io.BytesIO()
    sheet.save(out, format="PNG", optimize=True)
    return out.getvalue()


def _wrapped(label: str, *, most: int = 34) -> str:
    lines = [line[n : n + most] for line in label.splitlines() for n in range(0, len(line), most)]
    return "\n".join(lines)


def _tile(file: Path | None) -> Image.Image | None:
    if file is None:
        return None
    try:
        with Image.open(file) as image:
            return ImageOps.contain(image.convert("RGB"), (TILE - 2, TILE - 2))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
