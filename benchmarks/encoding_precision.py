"""The error of encoding images in bf16 and tf32, against fp32.

    python -m benchmarks.encoding_precision [--vae FOLDER] [--device cuda] [--images 64] [--size 64]

Encodes random smooth images, and prints the root mean square error of a latent, and the largest
error of a channel's mean, as shares of the channel's std, and of the std itself. Latents are means
of the posterior. Without `--vae`, the VAE is a small AutoencoderKL of random weights. On a CPU tf32
is emulated: the factors of each product and convolution are rounded to 10 bits of mantissa.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from train.data.latents.vae import Vae

ATEN = torch.ops.aten
PRODUCTS = {ATEN.convolution, ATEN.addmm, ATEN.mm, ATEN.bmm, ATEN.baddbmm}


def main(arguments: list[str]) -> int:
    """Encode in each precision, and print the differences from fp32."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vae", type=Path, help="folder of a VAE (default: of random weights)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args(arguments)
    coarse = torch.rand(options.images, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    images = F.interpolate(2 * coarse - 1, size=options.size, mode="bilinear")
    with tempfile.TemporaryDirectory() as folder:
        vae = options.vae or random_vae(Path(folder))
        found = {
            precision: encoded(vae, images, precision, torch.device(options.device))
            for precision in ("fp32", "tf32", "bf16")
        }
    exact = found.pop("fp32")
    std = exact.std(dim=1, keepdim=True)
    for precision, latents in found.items():
        error = ((latents - exact) / std).square().mean().sqrt()
        shift = ((latents - exact) / std).mean(dim=1).abs().max()
        factor = (latents.std(dim=1, keepdim=True) / std - 1).abs().max()
        print(f"{precision}: a latent {error:.3%}, mean {shift:.3%}, std {factor:.3%}")
    return 0


def encoded(folder: Path, images: Tensor, precision: str, device: torch.device) -> Tensor:
    """Return the latents of all images `[C, n h w]` in float64."""
    emulates = precision == "tf32" and device.type == "cpu"
    vae = Vae(folder, device=device, precision=precision)
    with Tf32() if emulates else torch.no_grad():
        return vae.encode(images)[0].double().transpose(0, 1).flatten(1)


class Tf32(TorchDispatchMode):
    """Rounds the factors of products to the 10 bits of mantissa that TF32 has."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in PRODUCTS:
            args = [_rounded(x) if isinstance(x, Tensor) else x for x in args]
        return func(*args, **(kwargs or {}))


def _rounded(x: Tensor) -> Tensor:
    bits = x.view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def random_vae(folder: Path) -> Path:
    """Save a VAE of the structure of Stable Diffusion's, but 32 to 64 channels wide."""
    torch.manual_seed(0)
    AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(32, 64, 64, 64),
        layers_per_block=2,
    ).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
