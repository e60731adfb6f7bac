"""muP: activations that do not grow with the width; rates and weights of its own package."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import Pretrain
from tests.train.model.test_dit import config_of, inputs
from train.model.build import build_network
from train.pretrain.optimizer import parameter_groups

WIDTHS = (64, 256)
# Of `MuAdamW` in mup 1.0.0 (microsoft/mup) with weight decay 0.1, for this network of width 128 on
# base shapes of width 32: rate 0.25 and weight decay 0.4 for these, 1 and 0.1 for all others.
SLOWER = {"attention.out", "attention.qkv", "mlp.down", "mlp.up", "modulation"}
# The ratio of `mup.init.xavier_uniform_` to torch's for the same network, to 1e-3.
WIDER = {"patches_in.weight": 1.8439, "time.0.weight": 1.1547, "blocks.0.mlp.up.weight": 1.0}


def mup_config(width: int, *, base: int | None = 32, heads: int = 2, **more: Any) -> Pretrain:
    return config_of(width=width, heads=heads, mup_base_width=base, registers=2, **more)


@pytest.mark.parametrize("heads", ["fixed", "growing"])
def test_the_size_of_activations_does_not_depend_on_the_width_with_mup_only(heads: str) -> None:
    """The coordinate check of Yang et al. 2022, appendix D.1, after four steps of Adam."""
    slopes = []
    for base in (32, None):
        sizes = [
            sizes_after_steps(
                mup_config(width, base=base, heads=2 if heads == "fixed" else width // 16)
            )
            for width in WIDTHS
        ]
        logarithms = torch.tensor(sizes).log2()
        slopes.append(
            ((logarithms[-1] - logarithms[0]) / math.log2(WIDTHS[-1] / WIDTHS[0])).tolist()
        )
    with_mup, without = slopes
    assert max(map(abs, with_mup)) < 0.2, with_mup
    assert min(without) > 1, without


def sizes_after_steps(config: Pretrain) -> list[float]:
    """Return the mean absolute change of the blocks' tokens and of the output by four steps."""
    network, seen = build_network(config), list[Tensor]()
    x, t, label = inputs(batch=4)
    torch.manual_seed(2)
    target = torch.randn_like(x)
    for module in (*network.blocks, network.patches_out):
        module.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    groups = parameter_groups(network, config)
    rates = [group.pop("rate", 1.0) for group in groups]
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = 0.02 * rate
    with torch.no_grad():
        network(x, t, label)
    before = seen[:]
    for _ in range(4):
        (network(x, t, label) - target).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    seen.clear()
    with torch.no_grad():
        network(x, t, label)
    return [(b - a).abs().mean().item() for a, b in zip(before, seen, strict=True)]


def test_rates_and_weight_decay_are_those_of_the_mup_package() -> None:
    plain = mup_config(128)
    plain = plain.model_copy(
        update={"optimizer": plain.optimizer.model_copy(update={"weight_decay": 0.1})}
    )
    network = build_network(plain)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    slow = {
        names[id(parameter)]: (group["rate"], group["weight_decay"])
        for group in parameter_groups(network, plain)
        for parameter in group["params"]
        if "rate" in group
    }
    expected = {f"blocks.{n}.{part}.weight" for n in range(2) for part in SLOWER}
    assert set(slow) == expected | {"modulation_out.weight", "time.2.weight"}
    assert all(values == pytest.approx((0.25, 0.4)) for values in slow.values())
    moved = [len(group["params"]) for group in parameter_groups(network, plain)]
    assert sum(moved) == len(list(network.parameters()))


def test_initial_weights_are_those_of_the_mup_package() -> None:
    scaled, plain = build_network(mup_config(128)), build_network(mup_config(128, base=None))
    for name, ratio in WIDER.items():
        # The bounds of uniform distributions.
        found, usual = (each.get_parameter(name).abs().max() for each in (scaled, plain))
        assert (found / usual).item() == pytest.approx(ratio, rel=0.01)


def test_the_base_network_with_heads_of_64_channels_is_the_usual_one() -> None:
    scaled, plain = (
        build_network(config_of(width=128, heads=2, mup_base_width=base)) for base in (128, None)
    )
    scaled.load_state_dict(plain.state_dict())
    for network in (scaled, plain):
        with torch.no_grad():
            for phase, parameter in enumerate(network.parameters()):
                torch.manual_seed(phase)
                parameter.add_(0.05 * torch.randn_like(parameter))
    assert torch.equal(scaled(*inputs()), plain(*inputs()))
    config = mup_config(32, base=32)
    assert all("rate" not in group for group in parameter_groups(build_network(config), config))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"optimizer": {"kind": "muon"}}, "scales the rates of AdamW"),
        ({"model": {"family": "unet"}}, "mup_base_width is for model.family dit"),
    ],
)
def test_mup_with_muon_or_a_unet_is_refused(tree: dict[str, Any], message: str) -> None:
    tree = {"model": tree.get("model", {}) | {"mup_base_width": 64}} | {
        name: group for name, group in tree.items() if name != "model"
    }
    with pytest.raises(ConfigError, match=message):
        resolve(tree, source="test")
