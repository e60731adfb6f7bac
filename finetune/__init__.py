"""Fine-tune Flux with a LoRA: through ai-toolkit, or with an engine on diffusers and peft."""
