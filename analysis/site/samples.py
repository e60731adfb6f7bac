"""The samples of runs as small images, with the noise that each was drawn from."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from analysis.measure.sample_grid import MAX_PROMPTS, listed_prompt, spread, steps_of
from analysis.read.run_log import RunLog, kept_with_log
from analysis.report.sample_grids import small_png
from configs.schema import tagged
from runs.folder import RunFolder

# Keys beside those of `sample` that choose the noise of a grid.
_NOISE = tagged("pretrain", "picture")


@dataclass(frozen=True, kw_only=True)
class SampleImage:
    """One image: images of one `noise` differ by their weights alone; `file` tells the content."""

    step: int
    noise: str
    png: bytes

    @property
    def file(self) -> str:
        """The name in a site."""
        return f"images/{sha256(self.png).hexdigest()[:16]}.png"


@kept_with_log
def samples(log: RunLog) -> tuple[SampleImage, ...]:
    """Return the samples of a run by noise and step, of each noise at most `MAX_STEPS`."""
    found = []
    for noise, files in _series(log):
        steps = sorted(files)
        for step in (steps[n] for n in spread(len(steps))):
            png = small_png(files[step])
            found += [SampleImage(step=step, noise=noise, png=png)] if png else []
    return tuple(found)


def _series(log: RunLog) -> Iterator[tuple[str, dict[int, Path]]]:
    """Yield the noise and the files by step: of the grids, and of every prompt."""
    config = log.config or {}
    keys = [name for name in config if name in _NOISE or name.startswith("sample.")]
    facts = ", ".join(f"{name} {config[name]}" for name in keys if "prompts" not in name)
    grids = RunFolder(log.path).samples.glob("step-*.png")
    yield facts, {int(file.stem[5:]): file for file in grids if file.stem[5:].isdigit()}
    for prompt in range(MAX_PROMPTS):
        yield f"{listed_prompt(config, prompt)}, {facts}", steps_of(log, prompt)
