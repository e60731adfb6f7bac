"""A part of a training: something that it does beside its optimizer steps."""

from typing import Any

from torch import nn

Fields = dict[str, Any]


class Part:
    """Work of a training beside its steps: an average, a measurement, samples, a profile.

    Every method does nothing by default. The loop calls `before` and `after`, the step calls the
    others. All are collective: every rank calls the same methods of the same parts, in the order of
    their `order`. A part is due every `every` steps (None: never) and after the last step; its time
    is then booked to `clock`.
    """

    order: int = 100
    every: int | None = None
    clock: str = "eval"

    def begin(self) -> None:
        """Prepare an attempt, after the first pass over zeros; on the clock `setup`."""

    def interrupts(self, step: int) -> bool:
        """Return whether the earlier steps get a record of their own before `step` begins."""
        return False

    def before(self, step: int) -> None:
        """Prepare for a step, which is numbered from 1."""

    def after_microbatch(self) -> None:
        """Follow the backward pass of a microbatch."""

    def after_backward(self) -> None:
        """Follow the last backward pass of a step, before the gradients are used."""

    def after_update(self, step: int, result: Any) -> None:
        """Follow the optimizer's step; this is part of the training step and its time."""

    def is_due(self, step: int, *, last: bool) -> bool:
        """Return whether `after` follows this step."""
        return self.every is not None and (last or step % self.every == 0)

    def after(self, step: int) -> Fields | None:
        """Act after a step and its record; return fields for a record of the evaluation."""

    def fields(self) -> Fields:
        """Return fields for the record of the steps since the last one.

        Scalar tensors on the device are copied without waiting for them.
        """
        return {}

    def close(self) -> None:
        """End an attempt, which may have stopped early."""

    def state(self) -> dict[str, Any]:
        """Return the entries of a checkpoint, tensors that are loaded in place."""
        return {}

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that the optimizer moves in addition to the network's."""
        return {}
