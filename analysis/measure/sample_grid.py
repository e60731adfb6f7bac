"""Grids of the samples of fine-tuning runs: a row per run, a column per step.

A prompt that is the caption of a training image has that image as its first column.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont, ImageOps

from analysis.measure.finetune import LABELS, device, planned_steps
from analysis.read.run_log import RunLog
from configs.checks.captions import fill_trigger, read_text
from configs.disk import IMAGE_SUFFIXES
from configs.errors import ConfigError
from configs.files import open_regular
from configs.schema import tagged
from runs.folder import RunFolder

TILE, LABEL, HEAD, GAP = 160, 240, 44, 12
INK, SOFT = "#1d2733", "#5b6b7c"
MAX_STEPS, MAX_PROMPTS = 12, 8
# Keys that must be equal for two images to differ by device and step alone.
ALIKE = (*tagged("finetune", "picture"), "aitoolkit.model.arch")
# Keys and facts that a row names if not all rows agree: they change an image a little.
NAMED = {"engine": "engine"} | LABELS
# ai-toolkit draws one step later than the native engine.
NEARBY = 1


@dataclass(frozen=True, kw_only=True)
class SampleRow:
    """One run's samples of one prompt, files by the first of the steps of a column."""

    label: str
    files: dict[int, Path]


@dataclass(frozen=True, kw_only=True)
class SampleGrid:
    """The samples of one prompt: a row per run, `steps` as columns.

    `image` is the training image that has the prompt as its caption, if there is one.
    """

    prompt: int
    text: str
    steps: tuple[tuple[int, ...], ...]
    rows: tuple[SampleRow, ...]
    image: Path | None = None


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
        elif not steps_of(log, 0):
            refusals.append(f"{log.name} is not in the grid: it has no samples")
        elif foreign := _foreign_image(log):
            refusals.append(f"{log.name} is not in the grid: {foreign}")
        else:
            shown.append(log)
    if not shown:
        return SampleGrids(refusals=tuple(refusals))
    ordered = sorted(shown, key=lambda log: (str(device(log)), planned_steps(log) or 0, log.name))
    numbers = [number for number in range(MAX_PROMPTS) if steps_of(shown[0], number)]
    return SampleGrids(grids=tuple(_grid(ordered, n) for n in numbers), refusals=tuple(refusals))


def _unlike(a: RunLog, b: RunLog) -> list[str]:
    one, other = a.config or {}, b.config or {}
    found = [name for name in ALIKE if one.get(name) != other.get(name)]
    size, other_size = (_size(steps_of(log, 0)) for log in (a, b))
    if not found and None not in (size, other_size) and size != other_size:
        found.append(f"the size of its images, {other_size} against {size}")
    return found


def _size(files: Mapping[int, Path]) -> str | None:
    """Return the size of the first image, in pixels."""
    try:
        with open_regular(next(iter(files.values()), "")) as file, Image.open(file) as image:
            return f"{image.width}x{image.height}"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _foreign_image(log: RunLog) -> str | None:
    """Return a sentence on an image in a run's folder whose metadata name another run."""
    for prompt in range(MAX_PROMPTS):
        for file in steps_of(log, prompt).values():
            drawn_by = _metadata(file).get("run", log.path.name)
            if drawn_by != log.path.name:
                return f"{file.parent.name}/{file.name} was drawn by {drawn_by}"
    return None


def _metadata(file: Path) -> dict[str, object]:
    """Return an image's metadata, or nothing if it cannot be read."""
    try:
        with open_regular(file) as stream, Image.open(stream) as image:
            image.load()
            return {str(name): value for name, value in image.info.items()}
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return {}


def steps_of(log: RunLog, prompt: int) -> dict[int, Path]:
    """Return the samples of a prompt of a fine-tuning by step."""
    folder = RunFolder(log.path).prompt_sample(prompt, 0).parent
    files = folder.glob("step-*.png") if folder.is_dir() else iter(())
    steps = {file: file.stem.removeprefix("step-") for file in files}
    return {int(step): file for file, step in sorted(steps.items()) if step.isdigit()}


def _grid(logs: Sequence[RunLog], prompt: int) -> SampleGrid:
    by_step = [steps_of(log, prompt) for log in logs]
    columns = _columns(by_step)
    rows = tuple(
        SampleRow(
            label=label,
            files={steps[0]: found[n] for steps in columns for n in steps if n in found},
        )
        for label, found in zip(_labels(logs), by_step, strict=True)
    )
    config = logs[0].config or {}
    listed, drawn = listed_prompt(config, prompt), _metadata(next(iter(by_step[0].values())))
    text = str(drawn.get("prompt") or listed["prompt"])
    seed = drawn.get("seed", listed.get("seed"))
    return SampleGrid(
        prompt=prompt,
        text=text if seed is None else f"{text} (noise of seed {seed})",
        steps=columns,
        rows=rows,
        image=_training_image(config, text),
    )


def listed_prompt(config: Mapping[str, Any], prompt: int) -> dict[str, Any]:
    """Return the prompt and the seed that a config gives a number of an image."""
    listed = config.get("sample.prompts") or []
    entry = listed[prompt] if prompt < len(listed) else f"prompt {prompt}"
    own = entry if isinstance(entry, dict) else {"prompt": entry}
    if own.get("seed") is None and "sample.seed" in config:
        own = {**own, "seed": config["sample.seed"] + prompt}
    trigger = str(config.get("data.trigger") or "[trigger]")
    return {**own, "prompt": str(own["prompt"]).replace("[trigger]", trigger)}


def _labels(logs: Sequence[RunLog]) -> list[str]:
    """Return device, steps, name and seed of each run, and each of `NAMED` in which they differ."""
    facts = [{**(log.config or {}), "engine": log.facts.get("engine")} for log in logs]
    named = [name for name in NAMED if len({str(known.get(name)) for known in facts}) > 1]
    return [
        "\n".join(
            [
                f"{device(log)}, {planned_steps(log)} steps",
                log.name,
                f"seed {known.get('seed')}",
                *(f"{NAMED[name]} {known.get(name)}".strip() for name in named),
            ]
        )
        for log, known in zip(logs, facts, strict=True)
    ]


def _training_image(config: Mapping[str, Any], prompt: str) -> Path | None:
    """Return the training image whose caption is the prompt, if its folder is still there."""
    folder, trigger = config.get("data.folder"), config.get("data.trigger")
    for caption in sorted(Path(str(folder)).glob("*.txt")) if folder else ():
        try:
            text = fill_trigger(read_text(caption), str(trigger) if trigger else None)
        except (ConfigError, OSError):
            continue
        images = [caption.with_suffix(suffix) for suffix in IMAGE_SUFFIXES]
        if text == prompt:
            return next((image for image in images if image.is_file()), None)
    return None


def _columns(by_step: Sequence[Mapping[int, Path]]) -> tuple[tuple[int, ...], ...]:
    """Return the steps of all runs, thinned to `MAX_STEPS` including the first and the last.

    Steps at most `NEARBY` apart share a column, unless one run has both.
    """
    every: list[tuple[int, ...]] = []
    for step in sorted({step for found in by_step for step in found}):
        joins = every and step - every[-1][0] <= NEARBY
        if joins and not any(step in found and every[-1][0] in found for found in by_step):
            every[-1] = (*every[-1], step)
        else:
            every.append((step,))
    return tuple(every[n] for n in spread(len(every)))


def spread(count: int) -> list[int]:
    """Return at most `MAX_STEPS` of `count` places, evenly, including the first and the last."""
    most = min(MAX_STEPS, count)
    return [round(n * (count - 1) / max(most - 1, 1)) for n in range(most)]


def render_png(grids: Sequence[SampleGrid]) -> bytes:
    """Return the grids below each other as a PNG, with labels for prompts, runs and steps."""
    columns = [len(grid.steps) + (grid.image is not None) for grid in grids]
    heights = [HEAD + TILE * len(grid.rows) for grid in grids]
    size = (LABEL + TILE * max(columns), sum(heights) + GAP * (len(grids) - 1))
    canvas = Image.new("RGB", size, "white")
    top = 0
    for grid, height in zip(grids, heights, strict=True):
        _render(grid, canvas, top)
        top += height + GAP
    out = io.BytesIO()
    canvas.save(out, format="PNG", optimize=True)
    return out.getvalue()


def _render(grid: SampleGrid, canvas: Image.Image, top: int) -> None:
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(13)
    draw.text((4, top + 4), grid.text, fill=INK, font=font)
    heads = ["training image"] if grid.image else []
    heads += ["step " + " or ".join(map(str, steps)) for steps in grid.steps]
    for column, head in enumerate(heads):
        draw.text((LABEL + TILE * column + 4, top + 24), head, fill=SOFT, font=font)
    for number, row in enumerate(grid.rows):
        y = top + HEAD + TILE * number
        draw.multiline_text((4, y + 4), _wrap(row.label), fill=SOFT, font=font)
        files: list[Path | None] = [grid.image] if grid.image else []
        files += [row.files.get(steps[0]) for steps in grid.steps]
        for column, file in enumerate(files):
            tile = _tile(file)
            if tile is not None:
                canvas.paste(tile, (LABEL + TILE * column + 1, y + 1))


def _wrap(label: str, *, width: int = 32) -> str:
    lines = [line[n : n + width] for line in label.splitlines() for n in range(0, len(line), width)]
    return "\n".join(lines)


def _tile(file: Path | None) -> Image.Image | None:
    """Return an image that fills a tile; the pixels of a small one stay squares."""
    if file is None:
        return None
    try:
        with open_regular(file) as stream, Image.open(stream) as image:
            side = TILE - 2
            is_small = max(image.size) < side
            method = Image.Resampling.NEAREST if is_small else Image.Resampling.BICUBIC
            return ImageOps.contain(image.convert("RGB"), (side, side), method)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
