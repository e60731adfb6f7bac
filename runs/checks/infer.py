"""Resolve an `infer` config: the fine-tuning run, its LoRA, and the prompts."""

from dataclasses import dataclass
from pathlib import Path

from configs.checks.captions import fill_trigger
from configs.errors import ConfigError
from configs.load import expect
from configs.schema import Finetune, Infer
from runs.folder import RunFolder, open_run


@dataclass(frozen=True, kw_only=True)
class InferSpec:
    """The config that was `tuned`, its model, a LoRA file, and prompts without `[trigger]`."""

    tuned: Finetune
    model: Path
    lora: Path
    prompts: list[str]


def infer_spec(config: Infer) -> InferSpec:
    """Resolve the config; raise `ConfigError` if the run has no such LoRA."""
    run = open_run(Path(str(config.run)))
    tuned = expect(run.config(), Finetune, source=run.path)
    prompts = config.prompts or tuned.sample.prompts
    return InferSpec(
        tuned=tuned,
        model=Path(str(tuned.flux.folder)),
        lora=_find_lora(run, config.step),
        prompts=[fill_trigger(prompt, tuned.data.trigger) for prompt in prompts],
    )


def _find_lora(run: RunFolder, step: int | None) -> Path:
    """Return the LoRA of a run at `step`, or its newest."""
    found = sorted(run.lora.glob("step-*.safetensors"))
    if not found:
        raise ConfigError(f"{run.lora}: no LoRA yet; train the run first")
    if step is None:
        return found[-1]
    file = run.lora / f"step-{step:09d}.safetensors"
    if file not in found:
        steps = ", ".join(str(int(each.stem.removeprefix("step-"))) for each in found)
        raise ConfigError(f"step {step}: {run.name} has no LoRA of it; it has {steps}")
    return file
