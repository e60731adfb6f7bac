"""Pretraining of diffusion transformers under torchrun."""
