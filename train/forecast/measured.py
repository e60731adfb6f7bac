"""Predict the seconds of a step from a card, by its operations at measured rates; no torch.

Products and attention take the rates of the nearest shapes. The rest of a block, and the time
outside of the blocks, are what the card's small networks took beyond that, by the bytes that they
save for the backward pass. On a GPU the host may take longer to launch it all than the device.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from configs.checks.batch import BatchLayout, divide
from configs.load import expect, resolve
from configs.schema import Pretrain
from runs.cards import Card, Fit, Measured, card_key, find_card, find_fit
from train.forecast.activations import PRECISION_BYTES, block_kept, compiled_kept, edges_kept
from train.forecast.memory import block_count, dit_parameters, held_parameters
from train.forecast.roofline import EAGER_PASSES, StepTime
from train.model import flops

# Where the host takes all the time of a GPU: width, tokens, images.
HOST_BOUND = (64, 16, 1)
# DDP's default.
BUCKET_BYTES = 25 << 20
# The deviation of the log of measured over predicted seconds without a fit
# (docs/measurements/forecast-error.md).
_SPREAD = 0.2
_Points = list[tuple[float, float]]
_Rates = list[tuple[list[int], float]]


def step_config(shape: list[int], *, precision: str, compiled: bool) -> Pretrain:
    """Return the config of a card's small network: width, tokens, images and depth."""
    width, tokens, images, depth = shape
    tree = {
        "model": {"width": width, "depth": depth, "heads": max(1, width // 64), "patch": 2},
        "data": {"source": "dummy", "size": 2 * math.isqrt(tokens), "channels": 4, "classes": 1000},
        "train": {"global_batch": images, "precision": precision, "compile": compiled},
    }
    return expect(resolve(tree, source="card"), Pretrain, source="card")


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """Seconds of the parts of a step; `host` is the time in which the host launches them."""

    products: float
    attention: float
    rest: float
    outside: float
    update: float
    communication: float
    host: float

    @property
    def total(self) -> float:
        """The seconds of the step."""
        device = self.products + self.attention + self.rest + self.outside
        return max(device, self.host) + self.update + self.communication


class CardModel:
    """A card's rates in one precision, compiled or eager; raises `ValueError` if it lacks any."""

    def __init__(self, card: Card, *, precision: str, compiled: bool) -> None:
        self._card, self._is_gpu = card, "driver" in card.versions
        self._products = _rates(card.of("product", precision), math.prod)
        self._attention = _rates(card.of("attention", precision), lambda s: math.prod(s) * s[2])
        self._update = sorted((float(m.shape[0]), m.value) for m in card.of("update"))
        steps = card.of("step", precision, compiled=compiled)
        self._rest: _Points = []
        self._outside: _Points = []
        self._host = (0.0, 0.0)
        for shape, block, outside in _blocks(steps):
            config = step_config(shape, precision=precision, compiled=compiled)
            if self._is_gpu and tuple(shape[:3]) == HOST_BOUND:
                self._host = (block, outside)
                continue
            rest = block - sum(self._block(config, divide(config, world=1), shape[1]))
            self._rest.append((_block_bytes(config, shape[2]), rest))
            self._outside.append((edges_kept(config).image * shape[2], outside))
        if not (self._products and self._attention and self._update and self._rest):
            raise ValueError(f"the card of {card.device} has no {precision}")

    def parts(self, config: Pretrain, layout: BatchLayout, *, nodes: int = 1) -> StepParts:
        """Return a step's seconds on one rank; `ValueError` if the card lacks the communication."""
        images, times, depth = layout.micro_batch, layout.accumulation, config.model.depth
        macs, checkpointing = flops.training_macs(config), config.activation_checkpointing
        again = flops.recomputed_macs(config) / (macs["blocks"] + macs["attention"] + macs["adaln"])
        products = attention = 0.0
        for length, count in Counter(flops.block_tokens(config)).items():
            product, attended = self._block(config, layout, length)
            products, attention = products + count * product, attention + count * attended
        fastest = math.exp(min(rate for _, rate in self._products))
        products += images * sum(flops.extra_macs(config).values()) * fastest
        rest = depth * _along(self._rest, _block_bytes(config, images))
        outside = _along(self._outside, edges_kept(config).image * images)
        update = _along(self._update, held_parameters(config, layout))
        update += flops.newton_schulz_flops(config) / 6 / layout.world * fastest
        # Of both passes, the forward pass takes a third, and of attention 2 of 7 products.
        products *= 1 + again / 3
        attention *= 1 + again * 2 / 7
        if checkpointing.mode == "selective" and checkpointing.every is None:
            again = 1.0  # all but products and attention
        rest *= 1 + again / 3
        block_host, outside_host = self._host
        host = depth * (1 + again / 3) * block_host + outside_host
        compute = products + attention + rest + outside
        return StepParts(
            products=times * products,
            attention=times * attention,
            rest=times * rest,
            outside=times * outside,
            update=update,
            communication=self._exposed(config, layout, nodes, compute),
            host=0.0 if config.train.compile == "graphs" else times * host,
        )

    def spread(self) -> float:
        """Return the median relative spread of the card's measurements."""
        return median(m.spread for m in self._card.measured)

    def _block(self, config: Pretrain, layout: BatchLayout, length: int) -> tuple[float, float]:
        """Return the seconds of the products and of the attention of a block of `length` tokens."""
        images, d, heads = layout.micro_batch, config.model.width, config.model.heads
        hidden, ups = flops.mlp_hidden(config), {"gelu": 1, "swiglu": 2}[config.model.mlp]
        layers = [(3 * d, d), (d, d), (d, hidden), *[(hidden, d)] * ups]
        shapes = [(images * length, n, k) for n, k in layers]
        if config.model.conditioning == "adaln":
            shapes.append((images, 6 * d, d))
        products = sum(math.prod(shape) * _near(self._products, shape) for shape in shapes)
        attended = (images, heads, length, d // heads)
        return products, math.prod(attended) * length * _near(self._attention, attended)

    def _exposed(self, config: Pretrain, layout: BatchLayout, nodes: int, compute: float) -> float:
        """Return the seconds of communication that no computation hides; none on one rank.

        DDP sums gradients in buckets during the backward pass; FSDP gathers the weights twice for
        each micro batch. A CPU computes and communicates with the same cores.
        """
        if layout.world == 1:
            return 0.0
        known = [m for m in self._card.of("all_reduce") if (m.shape[2] > 1) == (nodes > 1)]
        if layout.tensor > 1 or not known:
            raise ValueError("the card has no all-reduce of this layout")
        nearest = min(known, key=lambda m: abs(math.log(m.shape[1] / layout.world)))
        size, ranks, _ = nearest.shape
        # A ring moves 2 (n - 1) / n of the bytes.
        ring = (1 - 1 / layout.world) / (1 - 1 / ranks)
        per_byte, hidden = nearest.value / size * ring, compute * 2 / 3
        moved = 4.0 * dit_parameters(config)
        if layout.shard > 1:
            gathers = PRECISION_BYTES[config.train.precision] * layout.accumulation
            moved *= (2 * gathers + PRECISION_BYTES[config.train.reduce]) / 8
            hidden = compute * layout.accumulation
        least = min(moved, BUCKET_BYTES) * per_byte
        return max(least, moved * per_byte - (hidden if self._is_gpu else 0.0))


def card_step(config: Pretrain, layout: BatchLayout, *, device: str, nodes: int) -> StepTime | None:
    """Return the predicted seconds of a step on a device with a card; None if that lacks a rate."""
    train, card, fit = config.train, find_card(device), find_fit()
    if card is None or train.float8:
        return None
    try:
        model = CardModel(card, precision=train.precision, compiled=bool(train.compile))
        seconds = model.parts(config, layout, nodes=nodes).total * (fit.factor if fit else 1)
    except ValueError:
        return None
    is_fitted = fit is not None and f"{card_key(device)} {train.precision}" in fit.machines
    half = interval(model.spread(), fit, is_fitted=is_fitted)
    others = "" if is_fitted else " of others"
    source = f"card, fitted on {fit.runs} runs{others}" if fit else "card"
    return StepTime(value=seconds, low=seconds / half, high=seconds * half, source=source)


def interval(spread: float, fit: Fit | None, *, is_fitted: bool) -> float:
    """Return the factor either way of a 90 % interval: Student's, by a fit, or the stated spread.

    With n runs the next one has the variance of one and of their mean, s^2 (1 + 1/n). That holds on
    the machines of the fit (`is_fitted`); on others the interval is at least the stated one.
    """
    stated = math.exp(NormalDist().inv_cdf(0.95) * math.hypot(_SPREAD, spread))
    if fit is None:
        return stated
    fitted = math.exp(_student(fit.runs - 1) * fit.spread * math.sqrt(1 + 1 / fit.runs))
    return fitted if is_fitted else max(fitted, stated)


def _student(freedom: int) -> float:
    """Return Student's 95 % quantile, within 1 % from 3 degrees of freedom on (Fisher 1925)."""
    z, v = NormalDist().inv_cdf(0.95), freedom
    terms = (z**3 + z) / 4 / v + (5 * z**5 + 16 * z**3 + 3 * z) / 96 / v**2
    return z + terms + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / v**3


def _blocks(steps: list[Measured]) -> list[tuple[list[int], float, float]]:
    """Return shape, seconds of a block, and outside of it, of each size measured at two depths."""
    found = []
    for one in steps:
        for deep in steps:
            if one.shape[3] == 1 < deep.shape[3] and one.shape[:3] == deep.shape[:3]:
                block = (deep.value - one.value) / (deep.shape[3] - 1)
                found.append((one.shape, block, max(0.0, one.value - block)))
    return found


def _block_bytes(config: Pretrain, images: int) -> float:
    """Return the bytes that a block saves for the backward pass, with a share for its weights.

    A gradient that is added moves 12 bytes, autocast's copies of the weight and of its gradient 12.
    """
    kept = (compiled_kept if config.train.compile else block_kept)(config)
    moved = 12 + 12 * (PRECISION_BYTES[config.train.precision] < 4)
    return kept.image * images + kept.once + block_count(config).cast * moved / EAGER_PASSES


def _rates(measured: list[Measured], work: Callable[[Sequence[int]], int]) -> _Rates:
    """Return shapes and the log of seconds per unit of `work`."""
    return [(m.shape, math.log(m.value / work(m.shape))) for m in measured]


def _near(rates: _Rates, shape: Sequence[int]) -> float:
    """Return the seconds per unit of work of a shape, by inverse distances between logs to 4."""
    total = weights = 0.0
    for known, rate in rates:
        far = sum(math.log(a / b) ** 2 for a, b in zip(shape, known, strict=True))
        weight = 1 / (far + 1e-6) ** 2
        total, weights = total + weight * rate, weights + weight
    return math.exp(total / weights)


def _along(points: _Points, x: float) -> float:
    """Return the height at `x` of the line through points, at least 0; beyond its ends, a share."""
    points = sorted(points)
    (first, low), (last, high) = points[0], points[-1]
    if x <= first:
        return max(0.0, low * x / first)
    if x >= last:
        return max(0.0, high * x / last)
    above = next(number for number, (at, _) in enumerate(points) if at > x)
    (x0, y0), (x1, y1) = points[above - 1], points[above]
    return max(0.0, y0 + (y1 - y0) * (x - x0) / (x1 - x0))
