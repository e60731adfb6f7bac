"""Flux LoRA: ai-toolkit driven from here, and an engine of our own on diffusers and peft."""
