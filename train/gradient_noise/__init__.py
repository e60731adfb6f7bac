"""The gradient noise scale, measured during training or at saved checkpoints."""
