"""What fine-tuning and drawing read, looked into before anything is queued."""

from pathlib import Path

from configs.checks.aitoolkit import check_aitoolkit
from configs.checks.captions import check_captioned
from configs.checks.flux import check_flux
from configs.checks.infer import infer_spec
from configs.checks.prompts import filled, prompts_of
from configs.disk import read_safetensors_header
from configs.errors import ConfigError
from configs.schema import Finetune, Infer, Run


def check_inputs(config: Run) -> None:
    """Refuse a model, images, captions, a LoRA or prompts that a run would only fail on."""
    if isinstance(config, Finetune):
        assert config.flux.folder is not None
        assert config.data.folder is not None
        check_flux(Path(config.flux.folder), variant=config.flux.variant)
        if config.flux.assistant_lora:
            _check_lora(Path(config.flux.assistant_lora))
        trigger = config.data.trigger
        check_captioned(Path(config.data.folder), trigger=trigger)
        for prompt in prompts_of(config.sample.prompts, config.sample.prompts_file):
            filled(prompt, trigger)
        check_aitoolkit(config)
    elif isinstance(config, Infer):
        asked = infer_spec(config)
        check_flux(asked.folder, variant=asked.variant)
        _check_lora(asked.lora)


def _check_lora(file: Path | None) -> None:
    if file and not any("lora" in name for name in read_safetensors_header(file).tensors):
        raise ConfigError(f"{file}: holds no LoRA (no tensor is named lora); name another file")
