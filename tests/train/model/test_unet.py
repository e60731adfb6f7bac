"""The U-Net of DDPM has the interface and the costs that training expects."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import Pretrain
from train.model.build import build_network, network_macs
from train.model.unet import UNet

DDPM = {"kind": "ddpm", "timesteps": "uniform"}


def config_of(**sections: Any) -> Pretrain:
    unet = {"width": 16, "mults": [1, 2], "layers": 1, "attention": [False, True]}
    tree: dict[str, Any] = {
        "model": {"family": "unet", "unet": unet},
        "data": {"source": "dummy", "size": 8, "channels": 3, "classes": 5},
        "objective": DDPM,
        "sample": {"sampler": "ddim"},
    }
    return resolve(tree | sections, source="test")


def test_the_image_the_time_and_the_label_each_matter() -> None:
    network = build_network(config_of()).eval()
    torch.manual_seed(1)
    x, t, label = torch.randn(3, 3, 8, 8), torch.rand(3), torch.tensor([0, 2, 4])
    null = torch.full_like(label, network.null_label)
    with torch.no_grad():
        plain = network(x, t, label)
        for other in (network(x + 1, t, label), network(x, 1 - t, label), network(x, t, null)):
            assert (other - plain).abs().max() > 1e-4
    assert plain.shape == x.shape


def test_no_parameter_is_in_two_blocks() -> None:
    network = UNet(config_of())
    inside = [p for block in network.blocks for p in block.parameters()]
    assert len({id(p) for p in inside}) == len(inside)
    names = {name.split(".")[1] for name, _ in network.named_parameters()}
    assert {"down_blocks", "mid_block", "up_blocks", "time_embedding", "class_embedding"} <= names
    assert len(network.blocks) == 5


def test_macs_are_what_torch_counts_of_a_forward_pass() -> None:
    config = config_of()
    macs = network_macs(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        UNet(config)(torch.randn(2, 3, 8, 8), torch.rand(2), torch.tensor([1, 2]))
    assert counter.get_total_flops() / 2 / 2 == pytest.approx(sum(macs.values()), rel=1e-3)
    assert macs["convolutions"] > macs["products"] > 0


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"layout": {"tensor": 2}}, "layout.tensor splits transformer blocks"),
        ({"activation_checkpointing": {"mode": "full"}}, "is for transformer blocks"),
        (
            {"data": {"source": "dummy", "size": 7, "channels": 3}},
            r"data.size 7 is not a multiple of 2\^",
        ),
        (
            {"model": {"family": "unet", "unet": {"mults": [1, 2]}}},
            "has 3 entries, model.unet.mults 2",
        ),
    ],
)
def test_options_that_a_unet_lacks_are_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(**sections)
