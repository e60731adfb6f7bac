"""The samples of runs as grids of small images: a row per run, a column per step.

The images of one grid have the prompt, the noise and the sampler in common, so they differ by the
weights alone.
"""

import base64
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from analysis.measure.differences import yaml_text
from analysis.observations import group_alike
from analysis.read.machine import gpu
from analysis.read.run_log import RunLog
from analysis.report.html import aside, text
from configs.files import open_regular
from configs.schema import tagged
from runs.folder import RunFolder

WIDEST, LARGEST_FILE = 360, 1 << 25
MAX_STEPS, MAX_PROMPTS = 12, 8
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_NUMBERED = re.compile(r"(step|image)-(\d+)")
# Keys besides the group `sample` that choose what is drawn.
_DRAWN_BY = frozenset(
    (*tagged("pretrain", "picture"), *tagged("finetune", "picture"), "aitoolkit.model.arch")
)


@dataclass(frozen=True, kw_only=True)
class SampleSeries:
    """The images of one run that were drawn alike, by step, or by number if they have no step.

    `drawing` holds all that chose them but the weights: prompt, seed and sampler.
    """

    log: RunLog
    drawing: Mapping[str, str]
    unit: str
    files: Mapping[int, Path]


def series_of(log: RunLog) -> Iterator[SampleSeries]:
    """Yield the series of a run: its grids, and the images of each prompt."""
    folder, config = RunFolder(log.path).samples, log.config or {}
    facts = {name: log.changed.get(name, yaml_text(value))
             for name, value in config.items() if _chooses_what(name)}  # fmt: skip
    is_seeded = "sample.seed" not in config and "seed" in config
    grids = facts | {"seed": str(config["seed"])} if is_seeded else facts
    numbered = _files(folder)
    if not numbered and not (folder / "prompt-00").is_dir() and (images := _images(folder)):
        numbered = {("image", 0): images[-1]}
    yield from _series(log, grids, numbered)
    for prompt in range(MAX_PROMPTS):
        # The seed of a prompt follows from `sample.seed`, or stands for it.
        own = {name: value for name, value in facts.items() if name != "sample.seed"}
        files = _files(folder / f"prompt-{prompt:02d}")
        yield from _series(log, own | _prompt(log, prompt), files)


def _chooses_what(name: str) -> bool:
    """Return whether a key chooses what is drawn, beside the prompts."""
    is_of_samples = name.startswith("sample.") and name != "sample.every" and "prompts" not in name
    return is_of_samples or name in _DRAWN_BY


def _series(
    log: RunLog, drawing: Mapping[str, str], files: Mapping[tuple[str, int], Path]
) -> Iterator[SampleSeries]:
    for unit in dict.fromkeys(unit for unit, _ in files):
        numbers = {number: file for (kind, number), file in files.items() if kind == unit}
        yield SampleSeries(log=log, drawing=drawing, unit=unit, files=numbers)


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _files(folder: Path) -> dict[tuple[str, int], Path]:
    found = ((_NUMBERED.fullmatch(path.stem), path) for path in _images(folder))
    return {(match[1], int(match[2])): path for match, path in found if match}


def _prompt(log: RunLog, prompt: int) -> dict[str, str]:
    """Return the prompt and the seed of a number of an image, by the manifest or the config."""
    config = log.config or {}
    listed = log.facts.get("prompts") or config.get("sample.prompts") or config.get("prompts") or []
    entry = listed[prompt] if prompt < len(listed) else f"prompt {prompt}"
    own = dict(entry) if isinstance(entry, dict) else {"prompt": entry}
    if own.get("seed") is None and "sample.seed" in config:
        own["seed"] = config["sample.seed"] + prompt
    trigger = str(config.get("data.trigger") or "[trigger]")
    known = own | {"prompt": str(own["prompt"]).replace("[trigger]", trigger)}
    return {name: str(value) for name, value in known.items() if value is not None}


def sample_grids(every: Sequence[SampleSeries]) -> list[list[SampleSeries]]:
    """Return the series that were drawn alike together, in the order of the runs."""
    return group_alike(every, lambda one: (one.unit, *one.drawing.items()))


def grid_columns(grid: Sequence[SampleSeries], *, most: int) -> list[int]:
    """Return the steps of all series, thinned evenly to `most` with the first and the last."""
    every = sorted({step for one in grid for step in one.files})
    count = min(most, len(every))
    places = [round(n * (len(every) - 1) / max(count - 1, 1)) for n in range(count)]
    return [every[place] for place in places]


def picture(path: Path) -> str | None:
    """Return an image at most `WIDEST` pixels wide as a `data:` URL; None if too large or damaged.

    One that had to shrink is a JPEG, since its pixels are changed anyway.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(path, most=LARGEST_FILE) as file, Image.open(file) as image:
                small = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Warning, Image.DecompressionBombError):
        return None
    out = io.BytesIO()
    is_large = small.width > WIDEST
    if is_large:
        height = max(1, round(small.height * WIDEST / small.width))
        small = small.resize((WIDEST, height), Image.Resampling.LANCZOS)
        small.save(out, format="JPEG", quality=88)
    else:
        small.quantize(128).save(out, format="PNG", optimize=True)
    content = base64.b64encode(out.getvalue()).decode()
    return f"data:image/{'jpeg' if is_large else 'png'};base64,{content}"


def samples(logs: Sequence[RunLog], *, most_images: int) -> str:
    """Return the grids of all runs with at most `most_images` samples.

    Many runs have fewer steps each, at least the first and the last.
    """
    every = [one for log in logs for one in series_of(log)]
    if not every:
        return ""
    shown = every[: most_images // 2]
    most_steps = max(2, min(MAX_STEPS, most_images // len(shown)))
    grids = sample_grids(shown)
    more = f"The first {len(shown)} of {len(every)} series of samples."
    told = [aside(more)] if len(every) > len(shown) else []
    drawn = (_grid(one, _title(one, grids), most_steps) for one in grids)
    return "\n".join([*drawn, *told, '<div id="viewer"></div>'])


def _grid(grid: Sequence[SampleSeries], title: str, most_steps: int) -> str:
    """Return the table of one grid; a cell without an image of its own run stays empty."""
    rows, steps = [], grid_columns(grid, most=most_steps)
    for series in grid:
        cells = []
        for step in steps:
            file = series.files.get(step)
            address = picture(file) if file else None
            of = f'data-run="{text(series.log.name)}" data-step="{step}" data-noise="{text(title)}"'
            alt = text(f"{series.log.name}, {series.unit} {step}")
            image = f'<img loading="lazy" src="{address}" alt="{alt}" {of}>' if address else ""
            cells.append(f"<td>{image}</td>")
        label = "<br>".join(text(line) for line in (series.log.name, *_facts(series.log)))
        rows.append(f'<tr><th scope="row">{label}</th>{"".join(cells)}</tr>')
    heads = ("", *(f"{grid[0].unit} {step}" for step in steps))
    top = "".join(f'<th scope="col">{text(head)}</th>' for head in heads)
    return (
        f'<h3>{text(title)}</h3><div class="wide"><table class="samples"><thead><tr>{top}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _title(grid: Sequence[SampleSeries], grids: Sequence[Sequence[SampleSeries]]) -> str:
    """Return the prompt, the seed, and all else in which not every grid was drawn alike."""
    own, others = dict(grid[0].drawing), [one[0].drawing for one in grids]
    prompt, seed = own.pop("prompt", None), own.pop("seed", None)
    unlike = [name for name in own if len({one[name] for one in others if name in one}) > 1]
    words = [prompt or "samples", *(f"{name} {own[name]}" for name in unlike)]
    return ", ".join(words) + (f" (noise of seed {seed})" if seed is not None else "")


def _facts(log: RunLog) -> list[str]:
    steps = (log.config or {}).get("train.steps")
    return [part for part in (gpu(log.facts), f"{steps} steps" if steps else None) if part]
