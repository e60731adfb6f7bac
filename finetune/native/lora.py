"""The LoRA that is learned and the one that assists, beside the frozen weights of a transformer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from diffusers import FluxPipeline, FluxTransformer2DModel
from peft import LoraConfig
from safetensors.torch import save_file
from torch import Tensor, nn

from configs.disk import sync_folder
from configs.schema.finetune import Lora
from finetune.libraries import expected_warnings
from finetune.native.draws import first_matrix

LEARNED, ASSISTANT = "learned", "assistant"

_ATTENTION = r"attn\.(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|to_add_out)"
_MLP = r"ff\.net\.(0\.proj|2)|ff_context\.net\.(0\.proj|2)|proj_mlp|proj_out"


def target_pattern(targets: str) -> str:
    """The projections that are tuned, as a pattern of their whole names in the transformer."""
    inner = _ATTENTION if targets == "attention" else f"({_ATTENTION}|{_MLP})"
    return rf"(single_)?transformer_blocks\.\d+\.{inner}"


class Weights(nn.Module):
    """The matrices of the learned LoRA alone, by the names that files have for them.

    A name's dots stand as `/` here, since torch keeps them for modules.
    """

    def __init__(self, named: dict[str, nn.Parameter], *, scale: float) -> None:
        super().__init__()
        self._scale = scale
        for name, parameter in named.items():
            self.register_parameter(name.replace(".", "/"), parameter)

    def to_save(self) -> dict[str, Tensor]:
        """The matrices as a file holds them, on the CPU, the scale within those of B."""
        tensors = {}
        for name, parameter in self.named_parameters():
            factor = self._scale if "/lora_B/" in name else 1.0
            tensor = (parameter.detach() * factor).cpu().contiguous()
            tensors[f"transformer.{name.replace('/', '.')}"] = tensor
        return tensors


def add_learned(transformer: FluxTransformer2DModel, asked: Lora, *, seed: int) -> Weights:
    """Put a LoRA that changes nothing yet beside the weights; only it takes gradients."""
    transformer.requires_grad_(False)
    alpha = asked.alpha if asked.alpha is not None else asked.rank
    config = LoraConfig(
        r=asked.rank,
        lora_alpha=alpha,
        target_modules=target_pattern(asked.targets),
    )
    with expected_warnings():
        transformer.add_adapter(config, adapter_name=LEARNED)
    named = {}
    for name, parameter in transformer.named_parameters():
        if f".{LEARNED}." in name:
            parameter.data = parameter.data.float()
            named[name.replace(f".{LEARNED}.", ".")] = parameter
    weights = Weights(named, scale=alpha / asked.rank)
    _draw(weights, seed)
    return weights


@torch.no_grad()
def _draw(weights: Weights, seed: int) -> None:
    """A from the seed alone, B zero, so that the LoRA is the same on any machine."""
    for number, (name, parameter) in enumerate(sorted(weights.named_parameters())):
        if "/lora_A/" in name:
            rows, columns = parameter.shape
            parameter.copy_(torch.from_numpy(first_matrix(seed, number, (rows, columns))))
        else:
            parameter.zero_()


def add_assistant(transformer: FluxTransformer2DModel, file: Path) -> None:
    """Put the assistant LoRA of a file beside the weights."""
    _add_from(transformer, file, ASSISTANT)


def load_lora(transformer: FluxTransformer2DModel, file: Path, *, scale: float) -> None:
    """Put a learned LoRA of a file beside the weights, in float32 as it was trained."""
    _add_from(transformer, file, LEARNED)
    for name, parameter in transformer.named_parameters():
        if f".{LEARNED}." in name:
            parameter.data = parameter.data.float()
    transformer.set_adapters([LEARNED], [scale])


def _add_from(transformer: FluxTransformer2DModel, file: Path, name: str) -> None:
    tensors, alphas, note = FluxPipeline.lora_state_dict(
        str(file), return_alphas=True, return_lora_metadata=True
    )
    with expected_warnings():
        transformer.load_lora_adapter(
            tensors, prefix="transformer", network_alphas=alphas, metadata=note, adapter_name=name
        )


def use(transformer: FluxTransformer2DModel, *names: str) -> None:
    """Let the adapters of these names count, and no others; only the learned one is trained."""
    if names:
        transformer.enable_adapters()
        transformer.set_adapters(list(names))
    else:
        transformer.disable_adapters()
    for name, parameter in transformer.named_parameters():
        parameter.requires_grad_(f".{LEARNED}." in name)


@contextmanager
def using(
    transformer: FluxTransformer2DModel, *names: str, after: tuple[str, ...]
) -> Iterator[None]:
    """Inside the `with` the adapters `names` count, behind it those of `after`."""
    use(transformer, *names)
    try:
        yield
    finally:
        use(transformer, *after)


def save_lora(weights: Weights, file: Path, *, note: dict[str, str]) -> None:
    """Write the LoRA in the keys that diffusers and ai-toolkit read, whole or not at all."""
    file.parent.mkdir(exist_ok=True)
    beside = file.with_suffix(".partial")
    save_file(weights.to_save(), str(beside), metadata={"format": "pt"} | note)
    beside.replace(file)
    sync_folder(file.parent)
