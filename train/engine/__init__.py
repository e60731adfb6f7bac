"""Attempts, ranks, checkpoints and the training loop, shared with finetune."""
