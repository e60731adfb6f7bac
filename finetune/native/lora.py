"""The LoRA adapter of a transformer, and its files."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import FluxPipeline, FluxTransformer2DModel
from peft import LoraConfig
from peft.tuners.lora import Linear, LoraLayer
from safetensors.torch import save_file
from torch import Tensor, nn

from configs.checks.lora import matrices
from configs.disk import replacing
from configs.errors import ConfigError
from configs.schema import Finetune
from configs.schema.finetune import Lora
from finetune.native.rng import initial_lora_a
from train.engine.attempt import Attempt
from train.engine.checkpoint import CheckpointSaver, CheckpointState
from train.engine.checkpoint_files import step_name

LEARNED = "learned"


class FusedLora(Linear):  # type: ignore[misc]
    """A layer of peft whose product with B also adds the update, in the type of the base model.

    peft reads and writes the layer's output thrice more, and its input once more, in float32.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output for `x` `[..., inputs]`: `[..., outputs]`."""
        names = [name for name in self.active_adapters if name in self.lora_A]
        if self.disable_adapters or any(name in self.lora_variant for name in names):
            output: Tensor = super().forward(x, *args, **kwargs)
            return output
        output = self.base_layer(x, *args, **kwargs)
        x, flat = x.to(output.dtype).flatten(0, -2), output.flatten(0, -2)
        for name in names:
            down = F.linear(x, self.lora_A[name].weight.to(x.dtype))
            up = (self.lora_B[name].weight * self.scaling[name]).to(x.dtype)
            flat = torch.addmm(flat, down, up.T)
        return flat.view_as(output)


class LoraWeights(nn.Module):
    """The parameters of a LoRA by their names in files.

    The dots of a name are replaced by `/`, because torch reserves dots for submodules.
    """

    def __init__(self, named: dict[str, nn.Parameter]) -> None:
        super().__init__()
        for name, parameter in named.items():
            self.register_parameter(name.replace(".", "/"), parameter)

    def file_tensors(self) -> dict[str, Tensor]:
        """Return the parameters as in a file, on the CPU."""
        return {
            f"transformer.{name.replace('/', '.')}": parameter.detach().cpu()
            for name, parameter in self.named_parameters()
        }

    def save(self, file: Path, *, metadata: dict[str, str]) -> None:
        """Write the LoRA atomically, in the keys that diffusers and ai-toolkit read."""
        file.parent.mkdir(exist_ok=True)
        with replacing(file) as stream:
            save_file(self.file_tensors(), stream.name, metadata={"format": "pt"} | metadata)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draw A by the seed alone, the same on any machine, and set B to zero."""
        for number, (name, parameter) in enumerate(sorted(self.named_parameters())):
            if "/lora_A/" in name:
                rows, columns = parameter.shape
                parameter.copy_(torch.from_numpy(initial_lora_a(seed, number, (rows, columns))))
            else:
                parameter.zero_()


def _name_in_file(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != LEARNED)


def add_learned(transformer: FluxTransformer2DModel, config: Lora, *, seed: int) -> LoraWeights:
    """Add a LoRA that changes nothing yet; only its parameters take gradients."""
    transformer.requires_grad_(False)
    linear = [name for name, part in transformer.named_modules() if isinstance(part, nn.Linear)]
    layers = [name for name in linear if config.selects(name)]
    update = LoraConfig(
        r=config.rank, lora_alpha=config.rank, target_modules="|".join(map(re.escape, layers))
    )
    transformer.add_adapter(update, adapter_name=LEARNED)
    weights = LoraWeights(
        {_name_in_file(n): p for n, p in _learned_in_float32(transformer).items()}
    )
    weights.initialise(seed)
    return weights


def load_lora(transformer: FluxTransformer2DModel, file: Path, *, scale: float) -> None:
    """Add the LoRA of a file, in float32 as it was trained.

    Raise `ConfigError` if an update of it would be left out.
    """
    expected = {name.removeprefix("transformer.") for name in matrices(file)}
    state, alphas, metadata = FluxPipeline.lora_state_dict(
        str(file), return_alphas=True, return_lora_metadata=True
    )
    transformer.load_lora_adapter(
        state, prefix="transformer", network_alphas=alphas, metadata=metadata, adapter_name=LEARNED
    )
    loaded = {name for name, part in transformer.named_modules() if isinstance(part, LoraLayer)}
    if left := sorted(expected - loaded):
        raise ConfigError(f"{file}: diffusers does not load its update of {left[0]}")
    _learned_in_float32(transformer)
    transformer.set_adapters([LEARNED], [scale])


def _learned_in_float32(transformer: FluxTransformer2DModel) -> dict[str, nn.Parameter]:
    """Convert the LoRA to float32 and return its parameters by name."""
    for module in transformer.modules():
        if isinstance(module, Linear):
            module.__class__ = FusedLora
    learned = {n: p for n, p in transformer.named_parameters() if LEARNED in n.split(".")}
    for parameter in learned.values():
        parameter.data = parameter.data.float()
    return learned


@contextmanager
def without_lora(transformer: FluxTransformer2DModel) -> Iterator[None]:
    """Make the transformer compute as its base model inside the `with` block."""
    transformer.disable_adapters()
    try:
        yield
    finally:
        transformer.enable_adapters()


class LoraSaver(CheckpointSaver):
    """Writes the LoRA as a file before each checkpoint."""

    def __init__(self, attempt: Attempt[Finetune], weights: LoraWeights) -> None:
        self._attempt, self._weights = attempt, weights
        super().__init__(
            attempt.run.checkpoints,
            keep=attempt.config.checkpoint.keep,
            is_superseded=attempt.is_superseded,
        )

    def save(self, state: CheckpointState) -> None:
        """Save the LoRA and the checkpoint. Collective."""
        if self._attempt.ranks.rank == 0:
            self._save_file(state.step)
        super().save(state)

    def _save_file(self, step: int) -> None:
        run, trigger = self._attempt.run, self._attempt.config.data.trigger
        file = run.lora / f"{step_name(step)}.safetensors"
        metadata = {"run": run.name, "step": str(step)}
        self._weights.save(file, metadata=metadata | ({"trigger": trigger} if trigger else {}))
        for old in sorted(run.lora.glob("step-*.safetensors"))[: -self._keep]:
            old.unlink()
