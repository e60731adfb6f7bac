"""What fine-tuning and drawing read, looked into before anything is queued."""

from pathlib import Path

from configs.aitoolkit import check_aitoolkit_keys
from configs.captioned import check_captioned
from configs.drawing import drawing
from configs.flux_folder import check_flux
from configs.prompts import prompts_of
from configs.safetensors_file import read_header
from configs.schema import Finetune, Infer, Run
from configs.yaml12 import ConfigError


def check_inputs(config: Run) -> None:
    """Refuse a model, images, captions, a LoRA or prompts that a run would only fail on."""
    check_aitoolkit_keys(config)
    if isinstance(config, Finetune):
        assert config.flux.folder is not None
        assert config.data.folder is not None
        check_flux(Path(config.flux.folder), variant=config.flux.variant)
        if config.flux.assistant_lora:
            _check_lora(Path(config.flux.assistant_lora))
        check_captioned(Path(config.data.folder))
        prompts_of(config.sample.prompts, config.sample.prompts_file)
    elif isinstance(config, Infer):
        asked = drawing(config)
        check_flux(asked.folder, variant=asked.variant)
        _check_lora(asked.lora)


def _check_lora(file: Path | None) -> None:
    names = read_header(file) if file else ["lora"]
    if not any("lora" in name for name in names):
        raise ConfigError(f"{file}: holds no LoRA (no tensor is named lora); name another file")
