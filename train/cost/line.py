"""The cost of a step as a function of micro batch and depth; needs no torch.

The bytes that a step holds after an allocation are linear in the images of the micro batch, and in
the number of blocks. `train/cost/fit.py` takes these lines from steps of networks of few blocks.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one rank by kind, and `peak`, the most at any time; and the FLOPs of a step.

    Gradients grow while activations are freed, so `peak` can be less than the sum. `average` is
    the EMA, `activations` are kept from the forward to the backward pass. torch reports `peak` as
    allocated. `numbers` counts the parameters of the whole network.
    """

    parameters: float
    gradients: float
    optimizer: float
    average: float
    activations: float
    peak: float
    numbers: float
    flops: float


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Blocks of a network, one after the other, of which those far from both ends are alike.

    Blocks `front` and before, and the last `back` ones, may differ from others, and each block is
    like the one `period` blocks before it.
    """

    depth: int
    front: int = 1
    back: int = 1
    period: int = 1

    def small(self) -> int:
        """Return the least depth that has all kinds of blocks; `depth` if it is not much more."""
        least = self.front + self.back + (self.period if self.period > 1 else 0)
        small = least + (self.depth - least) % self.period
        return small if small + self.period < self.depth else self.depth


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Lines through the costs of a step, in images of the micro batch and blocks of each stack.

    The coefficients of a line are its value without images at `depths`, its slope in images, and
    for each stack its slope in blocks and that slope's own slope in images. `points` are the lines
    of the bytes held after those allocations that can be the peak.
    """

    depths: dict[str, int]
    kinds: dict[str, list[float]]
    points: list[list[float]]

    def memory(self, images: int, depths: Mapping[str, int]) -> Memory:
        """Return the memory of a micro batch of `images`, with so many blocks in each stack."""
        kinds = {name: self._value(line, images, depths) for name, line in self.kinds.items()}
        peak = max(self._value(line, images, depths) for line in self.points)
        return Memory(**kinds, peak=peak)

    def _value(self, line: list[float], images: int, depths: Mapping[str, int]) -> float:
        value = line[0] + line[1] * images
        for number, (stack, depth) in enumerate(self.depths.items()):
            block, block_image = line[2 + 2 * number : 4 + 2 * number]
            value += (depths[stack] - depth) * (block + block_image * images)
        return value


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """The costs of a step with one microbatch and with two, which stand for any more."""

    once: StepCost
    twice: StepCost

    def memory(self, images: int, accumulation: int, depths: Mapping[str, int]) -> Memory:
        """Return the memory and FLOPs of a step of so many microbatches of `images`."""
        once, twice = (one.memory(images, depths) for one in (self.once, self.twice))
        flops = once.flops + (accumulation - 1) * (twice.flops - once.flops)
        return replace(twice if accumulation > 1 else once, flops=flops)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, from which `from_json` makes the same."""
        return asdict(self)

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> "RunCost":
        """Return the cost of plain values."""
        return cls(once=StepCost(**tree["once"]), twice=StepCost(**tree["twice"]))
