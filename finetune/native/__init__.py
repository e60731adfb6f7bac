"""A Flux LoRA trained with diffusers and peft, without ai-toolkit."""
