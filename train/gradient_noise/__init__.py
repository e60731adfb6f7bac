"""The noise of gradients: read while training, and measured over saved checkpoints."""
