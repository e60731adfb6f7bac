"""What a tuning looks at on the way: the loss on fixed strata, and samples of every prompt."""

from collections.abc import Callable
from dataclasses import dataclass

from configs.schema import Finetune
from finetune.native.judging import LoraEvaluation
from train.engine.context import TrainingContext
from train.engine.ema import EMA


@dataclass(frozen=True, kw_only=True)
class LoraEvaluator:
    """Looks at the averaged LoRA."""

    context: TrainingContext[Finetune]
    average: EMA
    judging: LoraEvaluation

    def due(self, step: int) -> list[Callable[[], None]]:
        """The one look that is due after a step, if any is; it is due after the last."""
        last = step == self.context.attempt.config.train.steps
        return [self.look] if last or self.judging.is_due(step) else []

    def look(self) -> None:
        """Record the loss on the fixed strata and draw the samples that are due."""
        context, step = self.context, self.context.state.step
        with self.average.in_place():
            judged = self.judging.loss_at(step)
            context.clocks.lap("eval", drain=True)
            if judged is not None:
                context.metrics.evaluation(context.at | judged.fields())
                context.metrics.event("evaluated", **context.at)
            drawn = self.judging.draw_at(step)
        context.clocks.lap("sample", drain=True)
        if drawn:
            context.metrics.evaluation(context.at | drawn)
