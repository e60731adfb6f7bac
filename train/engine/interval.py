"""What a record sums up: the steps since the last one."""

from typing import Any

import torch
from torch import Tensor

from train.engine.distributed import sum_over_ranks


class LossAccumulator:
    """Losses and skipped images of this rank since the last record, kept on the device."""

    def __init__(self, device: torch.device) -> None:
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._skipped = 0
        self.steps = 0

    def add(self, loss: Tensor, *, skipped: int) -> None:
        """Add the sum of the losses of one microbatch."""
        self._loss += loss
        self._skipped += skipped

    def close(self, *, images: int, tensor: int) -> dict[str, Any]:
        """The loss averaged over the interval's `images`, summed over all ranks; begins anew.

        Each image is seen by `tensor` ranks.
        """
        sums = torch.stack([self._loss, self._loss.new_tensor(self._skipped)])
        loss, skipped = (sum_over_ranks(sums) / tensor).tolist()
        self._loss.zero_()
        self.steps = self._skipped = 0
        fields: dict[str, Any] = {"loss": loss / images}
        if skipped:
            fields["skipped_images"] = round(skipped)
        return fields
