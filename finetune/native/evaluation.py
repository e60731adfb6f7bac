"""What a tuning looks at on the way: the loss on fixed strata, and samples of every prompt."""

from collections.abc import Callable
from dataclasses import dataclass

from configs.schema import Finetune
from finetune.native.judging import Judging
from train.engine.context import Course
from train.engine.ema import Average


@dataclass(frozen=True, kw_only=True)
class TuningLooks:
    """Looks at the averaged LoRA."""

    course: Course[Finetune]
    average: Average
    judging: Judging

    def due(self, step: int) -> list[Callable[[], None]]:
        """The one look that is due after a step, if any is; it is due after the last."""
        last = step == self.course.attempt.config.train.steps
        return [self.look] if last or self.judging.is_due(step) else []

    def look(self) -> None:
        """Record the loss on the fixed strata and draw the samples that are due."""
        course, step = self.course, self.course.state.step
        with self.average.in_place():
            judged = self.judging.loss_at(step)
            course.clocks.lap("eval", drain=True)
            if judged is not None:
                course.journal.evaluation(course.at | judged.fields())
                course.journal.event("evaluated", **course.at)
            drawn = self.judging.draw_at(step)
        course.clocks.lap("sample", drain=True)
        if drawn:
            course.journal.evaluation(course.at | drawn)
