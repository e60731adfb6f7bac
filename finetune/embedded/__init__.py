"""A Flux LoRA trained here, with diffusers and peft."""

from finetune.embedded.tuning import attempt

__all__ = ["attempt"]
