"""The loss of Flux keeps the host ahead of the GPU: a step copies nothing from the CPU."""

from typing import Any

import torch
from diffusers import FluxPipeline, FluxTransformer2DModel
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from finetune.native.loss import LatentBatch, image_ids, losses

CUDA = torch.device("cuda", 0)


class _Copies(TorchDispatchMode):
    """Lists the operations that move data between the host and the GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        devices = {
            each.device.type
            for each in tree_leaves((args, output))
            if isinstance(each, Tensor) and each.ndim
        }
        if len(devices) > 1 or "_local_scalar_dense" in str(func):
            self.found.append(str(func))
        return output


def test_a_forward_and_backward_pass_copies_nothing_from_the_host() -> None:
    with FakeTensorMode(), torch.device(CUDA):
        transformer = FluxTransformer2DModel(
            num_layers=1, num_single_layers=1, num_attention_heads=2, attention_head_dim=16,
            in_channels=16, joint_attention_dim=32, pooled_projection_dim=32,
            axes_dims_rope=(4, 6, 6), guidance_embeds=True,
        )  # fmt: skip
        batch = LatentBatch(
            latent=torch.zeros(2, 4, 8, 8),
            noise=torch.zeros(2, 4, 8, 8),
            t=torch.zeros(2),
            prompt=torch.zeros(2, 5, 32),
            pooled=torch.zeros(2, 32),
        )
        with _Copies() as copies:
            per_image = losses(transformer, batch)
    assert per_image.device == CUDA
    assert copies.found == []


def test_the_positions_are_those_of_diffusers() -> None:
    cpu = torch.device("cpu")
    expected = FluxPipeline._prepare_latent_image_ids(1, 3, 5, cpu, torch.float32)
    assert torch.equal(image_ids(3, 5, device=cpu, dtype=torch.float32), expected)
