"""Step records from two sources: the clocks from the status table, the losses from its log."""

from collections import deque
from collections.abc import Iterator
from typing import Any

from finetune.aitoolkit.losses import Logged
from finetune.aitoolkit.timeline import Moment


class StepRecords:
    """Sums up `every` steps in a record, as soon as the losses of its last one are known."""

    def __init__(self, *, every: int, last: int, images_per_step: int) -> None:
        self._every, self._last, self._images = every, last, images_per_step
        self._waiting: deque[Moment] = deque()
        self._logged: dict[int, Logged] = {}
        self._newest = 0
        self._losses: list[float] = []
        self._skipped = 0

    def end_of_step(self, moment: Moment) -> None:
        """A step has ended: the clocks at its end."""
        self._waiting.append(moment)

    def log(self, logged: list[Logged]) -> None:
        """Take in what the log says of steps."""
        self._logged |= {one.step: one for one in logged}
        self._newest = max(self._newest, max(self._logged, default=0))

    def records(self, *, is_over: bool = False) -> Iterator[dict[str, Any]]:
        """Records that are complete by now; those of unlogged steps too where all `is_over`."""
        while self._waiting and (is_over or self._waiting[0].step <= self._newest):
            moment = self._waiting.popleft()
            logged = self._logged.pop(moment.step, None)
            if logged is not None:
                self._count(logged)
            if moment.step % self._every == 0 or moment.step == self._last:
                yield self._record(moment, lr=logged.lr if logged else None)

    def _count(self, logged: Logged) -> None:
        if logged.loss is None:
            self._skipped += 1
        else:
            self._losses.append(logged.loss)

    def _record(self, moment: Moment, *, lr: float | None) -> dict[str, Any]:
        loss = sum(self._losses) / len(self._losses) if self._losses else None
        fields = {
            "step": moment.step,
            "images": moment.step * self._images,
            "loss": loss,
            "lr": lr or None,
            "skipped_images": self._skipped * self._images or None,
            **moment.fields(),
        }
        self._losses, self._skipped = [], 0
        return fields
