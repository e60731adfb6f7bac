"""Token routing: the outputs of published code, the tokens that really flow, the same for a layout.

The layouts and a resume are compared in `tests/train/pretrain/test_recipe_ranks.py`.
"""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import Pretrain
from tests.train.cost.test_pretrain import peak
from tests.train.model.test_dit import config_of, inputs, perturbed
from tests.train.model.test_recipes import wave
from train.cost.memory import pretrain_memory
from train.cost.pretrain import run_steps
from train.diffusion.rng import kept_patches
from train.model.build import build_network, network_macs

TREAD = {"kind": "tread", "before": 1, "after": 1}
KEEP = torch.tensor([[1, 2, 5, 8, 11, 12, 14, 15]])
# Outputs [0, :, ::4, ::4] with the patches of KEEP, and with all, by dit.py of CompVis/tread
# (commit fccf77c).
PUBLISHED = (
    [-0.340831, -0.383747, -0.521045, -0.214214, -0.376707, -0.845586, -0.849332, -0.700896],
    [-0.753899, -0.525035, -0.687803, -0.435240, -0.835774, -0.927738, -0.949247, -1.143905],
)


def test_routing_gives_the_outputs_of_its_authors() -> None:
    model = {"width": 16, "depth": 4, "positions": "sincos", "qk_norm": False, "routing": TREAD}
    network = build_network(config_of(**model))
    with torch.no_grad():
        for phase, parameter in enumerate(network.parameters()):
            parameter.copy_(wave(*parameter.shape, phase=phase, scale=0.3))
        arguments = wave(1, 2, 8, 8, phase=1, scale=1), torch.tensor([0.3]), torch.tensor([3])
        for keep, expected in zip((KEEP, None), PUBLISHED, strict=True):
            found = network(*arguments, (), keep)[0, :, ::4, ::4].flatten()
            torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-5)


def routed_config(routing: dict[str, Any], **groups: Any) -> Pretrain:
    model = {"width": 512, "depth": 6, "heads": 8, "patch": 2, "routing": routing}
    data = {"source": "dummy", "size": 32, "channels": 4, "classes": 5}
    train = {"global_batch": 16, "compile": False} | groups.pop("train", {})
    tree = {"model": model, "data": data, "train": train, **groups}
    return resolve(tree, source="test")


def test_routed_blocks_read_the_kept_tokens_with_their_own_positions() -> None:
    network = perturbed(config_of(depth=4, registers=2, routing=TREAD))
    seen: list[tuple[Tensor, ...]] = []
    for block in network.blocks:
        block.register_forward_pre_hook(lambda block, inputs: seen.append(inputs))
    network(*inputs(), (), KEEP.expand(3, -1))
    assert [len(tokens[0]) for tokens, *_ in seen] == [18, 10, 10, 18]
    positions = [0, 1, *(KEEP[0] + 2).tolist()]
    for _, _, rope in seen[1:3]:
        assert torch.equal(rope[:, 0], network.rope[:, positions])
    everything = torch.arange(16).expand(3, -1)
    torch.testing.assert_close(network(*inputs(), (), everything), network(*inputs()))


def test_routing_trains_every_parameter_whether_patches_skip_blocks_or_not() -> None:
    for keep in (KEEP.expand(3, -1), None):
        network = perturbed(config_of(depth=3, routing=TREAD))
        network(*inputs(), (), keep).square().sum().backward()
        assert all(p.grad is not None and p.grad.any() for p in network.parameters())


def test_macs_of_training_count_the_tokens_that_flow() -> None:
    config = routed_config(TREAD)
    whole, routed = network_macs(config), network_macs(config, training=True)
    # Half of the patches in four of six blocks, and the layers beside the blocks.
    assert routed["attention"] / whole["attention"] == pytest.approx((2 + 4 / 4) / 6)
    assert routed["products"] / whole["products"] == pytest.approx((2 + 4 / 2) / 6, rel=0.03)


def test_the_cost_is_that_of_the_whole_network() -> None:
    config = routed_config(TREAD)
    deep = config.model_copy(update={"model": config.model.model_copy(update={"depth": 9})})
    layout = divide(deep, world=1)
    whole, _ = run_steps(deep, layout)
    found = pretrain_memory(deep, layout)
    assert found.peak == pytest.approx(peak(whole), rel=0.001)
    assert found.flops == pytest.approx(whole.kinds["flops"])


def test_the_kept_patches_are_a_function_of_seed_epoch_and_index() -> None:
    draw = functools.partial(kept_patches, of=64, count=16)
    first = draw(0, 3, 7)
    assert np.array_equal(first, draw(0, 3, 7))
    assert len(set(first)) == 16
    assert list(first) == sorted(first)
    for other in ((1, 3, 7), (0, 4, 7), (0, 3, 8)):
        assert not np.array_equal(first, draw(*other))
    counts = np.bincount(np.concatenate([draw(0, 0, n) for n in range(400)]), minlength=64)
    assert abs(counts - 100).max() < 5 * np.sqrt(75)  # 400 draws of a quarter


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"model": {"depth": 4, "routing": {"kind": "tread"}}}, "leave no block"),
        ({"model": {"family": "unet", "routing": TREAD}}, "is for model.family dit"),
    ],
    ids=["depth", "unet"],
)
def test_what_routing_cannot_do_is_refused(tree: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(tree, source="test")
