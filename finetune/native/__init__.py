"""The native engine: trains a Flux LoRA with diffusers and peft, without ai-toolkit."""
