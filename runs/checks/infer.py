"""Resolve an `infer` config: keys that are null take the value of its fine-tuning run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.checks.captions import fill_trigger
from configs.errors import ConfigError
from configs.load import expect
from configs.schema import Finetune, Infer
from runs.folder import RunFolder, open_run

_IMAGE_KEYS = ("width", "height", "steps", "guidance")


@dataclass(frozen=True, kw_only=True)
class InferSpec:
    """A model, an optional LoRA file, and the images to sample; prompts have no `[trigger]`."""

    folder: Path
    variant: str
    precision: str
    lora: Path | None
    prompts: list[str]
    width: int
    height: int
    steps: int
    guidance: float


def infer_spec(config: Infer) -> InferSpec:
    """Resolve the config; raise `ConfigError` if the run has no such LoRA or there is no prompt."""
    run = open_run(Path(config.run)) if config.run else None
    tuned = expect(run.config(), Finetune, source=run.path) if run else None
    values: dict[str, Any] = {"precision": "bf16"}
    values |= {"variant": "schnell", "width": 1024, "height": 1024, "steps": 4, "guidance": 1.0}
    if tuned:
        values |= {"precision": tuned.train.precision, "variant": tuned.flux.variant}
        values |= {name: getattr(tuned.sample, name) for name in _IMAGE_KEYS}
    own = {name: getattr(config, name) for name in values}
    folder = config.folder or (tuned.flux.folder if tuned else None)
    assert folder is not None
    return InferSpec(
        folder=Path(folder),
        lora=Path(config.lora) if config.lora else _find_lora(run, config),
        prompts=_prompts(config, tuned),
        **values | {name: value for name, value in own.items() if value is not None},
    )


def _prompts(config: Infer, tuned: Finetune | None) -> list[str]:
    trigger = config.trigger or (tuned.data.trigger if tuned else None)
    prompts = config.prompts or (tuned.sample.prompts if tuned else [])
    return [fill_trigger(prompt, trigger) for prompt in prompts]


def _find_lora(run: RunFolder | None, config: Infer) -> Path | None:
    """Return the LoRA of a run at `step`, or its newest."""
    if run is None:
        return None
    found = sorted(run.lora.glob("step-*.safetensors"))
    if not found:
        raise ConfigError(f"{run.lora}: no LoRA yet; train the run first")
    if config.step is None:
        return found[-1]
    file = run.lora / f"step-{config.step:09d}.safetensors"
    if file not in found:
        steps = ", ".join(str(int(each.stem.removeprefix("step-"))) for each in found)
        raise ConfigError(f"step {config.step}: {run.name} has no LoRA of it; it has {steps}")
    return file
