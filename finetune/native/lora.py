"""The LoRA adapters of a transformer, learned and assistant, and the files of the learned one."""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import FluxPipeline, FluxTransformer2DModel
from peft import LoraConfig
from peft.tuners.lora import Linear
from safetensors.torch import save_file
from torch import Tensor, nn

from configs.disk import replacing
from configs.schema import Finetune
from configs.schema.finetune import Lora
from finetune.native.rng import initial_lora_a
from train.engine.attempt import Attempt
from train.engine.checkpoint import CheckpointSaver, CheckpointState
from train.engine.checkpoint_files import step_name
from train.engine.distributed import from_every_rank
from train.engine.ema import EMA
from train.engine.failure import RunFailure
from train.engine.metrics import log

LEARNED, ASSISTANT = "learned", "assistant"

_ATTENTION = r"attn\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|to_add_out)"
_MLP = r"ff\.net\.(0\.proj|2)|ff_context\.net\.(0\.proj|2)|proj_mlp|proj_out"
# Both are intended: nothing is merged into quantised weights, and the assistant is a second
# adapter.
_EXPECTED_WARNINGS = (
    "TorchaoLoraLinear was instantiated",
    "Already found a `peft_config` attribute",
)


class FusedLora(Linear):  # type: ignore[misc]
    """A layer of peft whose product with B also adds the update, in the type of the base model.

    peft reads and writes the layer's output thrice more, and its input once more, in float32.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the layer's output for `x` `[..., inputs]`: `[..., outputs]`."""
        names = [name for name in self.active_adapters if name in self.lora_A]
        if self.disable_adapters or not all(map(self._is_plain, names)):
            output: Tensor = super().forward(x, *args, **kwargs)
            return output
        output = self.base_layer(x, *args, **kwargs)
        x, flat = x.to(output.dtype).flatten(0, -2), output.flatten(0, -2)
        for name in names:
            down = F.linear(x, self.lora_A[name].weight.to(x.dtype))
            up = (self.lora_B[name].weight * self.scaling[name]).to(x.dtype)
            flat = torch.addmm(flat, down, up.T)
        return flat.view_as(output)

    def _is_plain(self, name: str) -> bool:
        is_dropped = not isinstance(self.lora_dropout[name], nn.Identity)
        return not (is_dropped or name in self.lora_variant or self.lora_bias[name])


class LoraWeights(nn.Module):
    """The matrices of the learned LoRA, by their names in files.

    The dots of a name are replaced by `/`, because torch reserves dots for submodules.
    """

    def __init__(self, named: dict[str, nn.Parameter], *, scale: float) -> None:
        super().__init__()
        self._scale = scale
        for name, parameter in named.items():
            self.register_parameter(name.replace(".", "/"), parameter)

    def file_tensors(self) -> dict[str, Tensor]:
        """Return the matrices as in a file: on the CPU, with the scale multiplied into B."""
        tensors = {}
        for name, parameter in self.named_parameters():
            factor = self._scale if "/lora_B/" in name else 1.0
            tensor = (parameter.detach() * factor).cpu().contiguous()
            tensors[f"transformer.{name.replace('/', '.')}"] = tensor
        return tensors

    def save(self, file: Path, *, metadata: dict[str, str]) -> None:
        """Write the LoRA atomically, in the keys that diffusers and ai-toolkit read."""
        file.parent.mkdir(exist_ok=True)
        with replacing(file) as stream:
            save_file(self.file_tensors(), stream.name, metadata={"format": "pt"} | metadata)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draw A from the seed alone and set B to zero: the LoRA is the same on any machine."""
        for number, (name, parameter) in enumerate(sorted(self.named_parameters())):
            if "/lora_A/" in name:
                rows, columns = parameter.shape
                parameter.copy_(torch.from_numpy(initial_lora_a(seed, number, (rows, columns))))
            else:
                parameter.zero_()


def target_pattern(targets: str) -> str:
    """Return a pattern of the full names of the projections that get a LoRA."""
    inner = _ATTENTION if targets == "attention" else f"({_ATTENTION}|{_MLP})"
    return rf"(single_)?transformer_blocks\.\d+\.{inner}"


def add_learned(transformer: FluxTransformer2DModel, config: Lora, *, seed: int) -> LoraWeights:
    """Add a LoRA that changes nothing yet (B is zero); only its matrices take gradients."""
    transformer.requires_grad_(False)
    alpha = config.alpha if config.alpha is not None else config.rank
    adapter = LoraConfig(
        r=config.rank, lora_alpha=alpha, target_modules=target_pattern(config.targets)
    )
    with _expected_warnings():
        transformer.add_adapter(adapter, adapter_name=LEARNED)
    named = {
        name.replace(f".{LEARNED}.", "."): parameter
        for name, parameter in _learned_in_float32(transformer).items()
    }
    weights = LoraWeights(named, scale=alpha / config.rank)
    weights.initialise(seed)
    return weights


def add_assistant(transformer: FluxTransformer2DModel, file: Path) -> None:
    """Add the assistant LoRA of a file."""
    _add_from_file(transformer, file, ASSISTANT)


def load_lora(transformer: FluxTransformer2DModel, file: Path, *, scale: float) -> None:
    """Add a learned LoRA from a file, in float32 as it was trained."""
    _add_from_file(transformer, file, LEARNED)
    _learned_in_float32(transformer)
    transformer.set_adapters([LEARNED], [scale])


def _learned_in_float32(transformer: FluxTransformer2DModel) -> dict[str, nn.Parameter]:
    """Convert the learned LoRA to float32 and return its parameters by name."""
    for module in transformer.modules():
        if isinstance(module, Linear):
            module.__class__ = FusedLora
    learned = {n: p for n, p in transformer.named_parameters() if f".{LEARNED}." in n}
    for parameter in learned.values():
        parameter.data = parameter.data.float()
    return learned


def _add_from_file(transformer: FluxTransformer2DModel, file: Path, name: str) -> None:
    tensors, alphas, metadata = FluxPipeline.lora_state_dict(
        str(file), return_alphas=True, return_lora_metadata=True
    )
    with _expected_warnings():
        transformer.load_lora_adapter(
            tensors,
            prefix="transformer",
            network_alphas=alphas,
            metadata=metadata,
            adapter_name=name,
        )


@contextmanager
def _expected_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        for message in _EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        yield


def training_adapters(config: Finetune) -> tuple[str, ...]:
    """Return the adapters that are active in training."""
    return (LEARNED, ASSISTANT) if config.flux.assistant_lora else (LEARNED,)


def activate(transformer: FluxTransformer2DModel, *names: str) -> None:
    """Make exactly the named adapters active; only the learned one takes gradients."""
    if names:
        transformer.enable_adapters()
        transformer.set_adapters(list(names))
    else:
        transformer.disable_adapters()
    for name, parameter in transformer.named_parameters():
        parameter.requires_grad_(f".{LEARNED}." in name)


@contextmanager
def active(
    transformer: FluxTransformer2DModel, *names: str, after: tuple[str, ...]
) -> Iterator[None]:
    """Make the adapters `names` active inside the `with` block, and those of `after` afterwards."""
    activate(transformer, *names)
    try:
        yield
    finally:
        activate(transformer, *after)


class LoraSaver(CheckpointSaver):
    """Writes the LoRA and its average as files before each checkpoint."""

    def __init__(self, attempt: Attempt[Finetune], weights: LoraWeights, ema: EMA) -> None:
        self._attempt, self._weights, self._ema = attempt, weights, ema
        super().__init__(
            attempt.run.checkpoints,
            keep=attempt.config.checkpoint.keep,
            is_superseded=attempt.is_superseded,
        )

    def save(self, state: CheckpointState) -> None:
        """Save LoRA files and checkpoint, if all ranks hold the same weights. Collective."""
        self._check_ranks_agree(state.step)
        if self._attempt.ranks.rank == 0:
            self._save_files(state.step)
        super().save(state)

    def _save_files(self, step: int) -> None:
        run, weights, name = self._attempt.run, self._weights, f"{step_name(step)}.safetensors"
        metadata = {"run": run.name, "step": str(step)}
        with self._ema.swapped_in():
            weights.save(run.lora / name, metadata=metadata)
        if self._ema.weights:
            weights.save(run.lora / "raw" / name, metadata=metadata)
        for folder in (run.lora, run.lora / "raw"):
            for old in sorted(folder.glob("step-*.safetensors"))[: -self._keep]:
                old.unlink()

    def _check_ranks_agree(self, step: int) -> None:
        """Raise `RunFailure` if the hash of the weights differs between ranks."""
        digest = hashlib.sha256()
        for tensor in self._weights.file_tensors().values():
            digest.update(tensor.numpy().tobytes())
        mine = digest.hexdigest()
        log.info("lora after step %d: %s", step, mine[:16])
        if len(set(from_every_rank(mine))) > 1:
            raise RunFailure("crash", f"ranks hold different weights at step {step}")
