"""What ai-toolkit would lose, ignore or fail on, refused before anything is queued."""

import os
from pathlib import Path

from configs.checks.aitoolkit_home import find_home
from configs.checks.aitoolkit_keys import check_keys
from configs.checks.captions import pairs
from configs.disk import read_safetensors_header
from configs.errors import ConfigError
from configs.schema import Finetune

ASSISTANT_KEY = "transformer.single_transformer_blocks.0.attn.to_k.lora_A.weight"
IMAGES = (".png", ".jpg", ".jpeg", ".webp")


def check_aitoolkit(config: Finetune) -> None:
    """Refuse what a run by ai-toolkit would lose or fail on, as far as this machine can tell."""
    check_keys(config.aitoolkit)
    if config.engine != "aitoolkit":
        return
    check_wishes(config)
    # Unset here it may yet be set where the job runs.
    if os.environ.get("AI_TOOLKIT"):
        find_home()


def check_wishes(config: Finetune) -> None:
    """Refuse what ai-toolkit would pass over, fail on or ignore: images, an assistant, an alpha."""
    assert config.data.folder is not None
    for pair in pairs(Path(config.data.folder)):
        if pair.image.suffix.lower() not in IMAGES:
            raise ConfigError(
                f"{pair.image}: ai-toolkit reads {' '.join(IMAGES)} alone and would pass it over; "
                "save it as PNG, or set engine=embedded"
            )
    _check_assistant(config.flux.assistant_lora)
    if config.lora.alpha not in (None, config.lora.rank):
        raise ConfigError(
            f"lora.alpha {config.lora.alpha:g}: ai-toolkit takes the rank for it with Flux, "
            "whatever is asked; remove it, or set engine=embedded"
        )


def _check_assistant(file: str | None) -> None:
    if file is not None and ASSISTANT_KEY not in read_safetensors_header(Path(file)).tensors:
        raise ConfigError(
            f"flux.assistant_lora {file}: has no {ASSISTANT_KEY}, by which ai-toolkit knows its "
            "rank; name another file, or set engine=embedded"
        )


def check_one_rank(world: int) -> None:
    """Refuse more ranks than one, of which ai-toolkit would lose the work of all but one."""
    if world > 1:
        raise ConfigError(
            f"engine aitoolkit trains on one GPU, not on {world}: it never adds up the gradients "
            "of ranks, so each would train a LoRA of its own and all but one be lost; ask for one "
            "GPU, or set engine=embedded"
        )
