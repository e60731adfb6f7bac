"""Lines through the steps of networks of few blocks, from which the cost of deep ones follows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from train.cost.line import RunCost, Stack, StepCost
from train.cost.storages import Segment

Numbers = np.ndarray[Any, np.dtype[np.float64]]
# The bytes of a rank after each allocation, by microbatch, stack, pass and number of the block.
_Points = dict[tuple[str, str, int], Numbers]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The bytes by kind of one step, and those held after its allocations."""

    kinds: dict[str, int]
    segments: list[Segment]


def fit_cost(
    run: Callable[[int, Mapping[str, int]], tuple[Trial, Trial]],
    stacks: Mapping[str, Stack],
    *,
    images: int,
) -> RunCost:
    """Return the cost of steps from runs with `images` and twice as many, and with more blocks.

    `run` takes a step of one microbatch and one of two, with a micro batch and a depth of each
    stack. A stack that is not much deeper than its least depth is run whole.
    """
    base = {name: stack.small() for name, stack in stacks.items()}
    varied = {name: stack for name, stack in stacks.items() if base[name] < stack.depth}
    both = (images, 2 * images)
    trials = [[run(size, base) for size in both]]
    for name, stack in varied.items():
        deeper = base | {name: base[name] + stack.period}
        trials.append([run(size, deeper) for size in both])
    once, twice = (
        _step_cost([[both_steps[number] for both_steps in pair] for pair in trials],
                   varied, base, images=images)
        for number in range(2)
    )  # fmt: skip
    return RunCost(once=once, twice=twice)


def _step_cost(
    trials: list[list[Trial]], varied: Mapping[str, Stack], base: Mapping[str, int], *, images: int
) -> StepCost:
    scales = [stack.period for stack in varied.values()]
    kinds = {
        name: _line(
            [[np.array(one.kinds[name], float) for one in pair] for pair in trials], images, scales
        ).tolist()
        for name in trials[0][0].kinds
    }
    points = [[_points(trial) for trial in pair] for pair in trials]
    lines = [
        _line(one, images, scales).reshape(2 + 2 * len(scales), -1).T
        for one in _aligned(points, varied, base)
    ]
    return StepCost(
        depths={name: base[name] for name in varied},
        kinds=kinds,
        points=_highest(np.concatenate(lines)).tolist(),
    )


def _points(trial: Trial) -> _Points:
    found: _Points = {}
    microbatch = ""
    for segment in trial.segments:
        microbatch = segment.name if segment.block is None else microbatch
        block = -1 if segment.block is None else segment.block
        found[microbatch, segment.name, block] = np.array(segment.held, float)
    return found


def _aligned(
    points: list[list[_Points]], varied: Mapping[str, Stack], base: Mapping[str, int]
) -> Iterator[list[list[Numbers]]]:
    """Yield the same allocations of all trials: `[runs][one or two batches][allocations]`.

    A block far from both ends counts twice: as the one at its distance from the first block and
    as the one at its distance from the last.
    """
    for key in points[0][0]:
        microbatch, name, block = key
        own = next((number for number, stack in enumerate(varied) if name.startswith(stack)), None)
        shifts = [0]
        if own is not None:
            stack_name = list(varied)[own]
            stack, depth = varied[stack_name], base[stack_name]
            shifts = [0] * (block < depth - stack.back) + [stack.period] * (block >= stack.front)
        for shift in shifts:
            keys = [(microbatch, name, block + shift * (number - 1 == own))
                    for number in range(len(points))]  # fmt: skip
            keys[0] = key
            yield _equally_long(
                [[one[place] for one in pair] for pair, place in zip(points, keys, strict=True)]
            )


def _equally_long(found: list[list[Numbers]]) -> list[list[Numbers]]:
    """Return the allocations, or only the largest of each trial if their numbers differ."""
    if len({len(one) for pair in found for one in pair}) == 1:
        return found
    return [[one.max(keepdims=True) for one in pair] for pair in found]


def _line(values: list[list[Numbers]], images: int, scales: list[int]) -> Numbers:
    """Return the coefficients of `StepCost` along the first axis."""
    at_none, slope = zip(
        *((2 * one - two, (two - one) / images) for one, two in values), strict=True
    )
    lines = [at_none[0], slope[0]]
    for number, scale in enumerate(scales, start=1):
        lines += [(at_none[number] - at_none[0]) / scale, (slope[number] - slope[0]) / scale]
    return np.stack(lines)


def _highest(lines: Numbers) -> Numbers:
    """Return the lines of which no other is at least as high for any larger batch and depth."""
    left = lines[np.lexsort(-lines.T[::-1])]
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        left = left[(left > best).any(axis=1)]
    return np.stack(kept)
