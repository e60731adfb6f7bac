"""What an `infer` config comes to: its own keys, and where they are null those of its run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.checks.prompts import filled, prompts_of
from configs.errors import ConfigError
from configs.load import expect
from configs.run.folder import RunFolder, open_run
from configs.schema import Finetune, Infer

_CANVAS = ("width", "height", "steps", "guidance")


@dataclass(frozen=True, kw_only=True)
class InferSpec:
    """A model, a LoRA file or none, and what is drawn: prompts with the trigger filled in."""

    folder: Path
    variant: str
    quantise: str
    precision: str
    lora: Path | None
    prompts: list[str]
    width: int
    height: int
    steps: int
    guidance: float


def infer_spec(config: Infer) -> InferSpec:
    """What is to be drawn; `ConfigError` where the run has no such LoRA, or a file no prompts."""
    run = open_run(Path(config.run)) if config.run else None
    tuned = expect(run.config(), Finetune, source=run.path) if run else None
    said: dict[str, Any] = {"quantise": "none", "precision": "bf16"}
    said |= {"variant": "schnell", "width": 1024, "height": 1024, "steps": 4, "guidance": 1.0}
    if tuned:
        said |= {"quantise": tuned.flux.quantise, "precision": tuned.train.precision}
        said |= {"variant": tuned.flux.variant}
        said |= {name: getattr(tuned.sample, name) for name in _CANVAS}
    own = {name: getattr(config, name) for name in said}
    folder = config.folder or (tuned.flux.folder if tuned else None)
    assert folder is not None
    return InferSpec(
        folder=Path(folder),
        lora=Path(config.lora) if config.lora else _lora_of(run, config),
        prompts=_prompts(config, tuned),
        **said | {name: value for name, value in own.items() if value is not None},
    )


def _prompts(config: Infer, tuned: Finetune | None) -> list[str]:
    if config.prompts or config.prompts_file or tuned is None:
        texts = prompts_of(config.prompts, config.prompts_file)
    else:
        texts = prompts_of(tuned.sample.prompts, tuned.sample.prompts_file)
    trigger = config.trigger or (tuned.data.trigger if tuned else None)
    return [filled(text, trigger) for text in texts]


def _lora_of(run: RunFolder | None, config: Infer) -> Path | None:
    """The LoRA of a run after `step`, or the newest."""
    if run is None:
        return None
    folder = run.lora if config.weights == "ema" else run.lora / "raw"
    found = sorted(folder.glob("step-*.safetensors"))
    if not found:
        raise ConfigError(f"{folder}: no LoRA yet; train the run first, or set weights=ema")
    if config.step is None:
        return found[-1]
    file = folder / f"step-{config.step:09d}.safetensors"
    if file not in found:
        steps = ", ".join(str(int(each.stem.removeprefix("step-"))) for each in found)
        raise ConfigError(f"step {config.step}: {run.name} keeps none of it; it has {steps}")
    return file
