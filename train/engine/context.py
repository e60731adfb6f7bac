"""The course of a training: how far it is, on which clocks, and who follows and watches it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from configs.checks.batch import BatchLayout
from configs.schema import Finetune, Pretrain
from train.engine.attempt import Attempt, conclude
from train.engine.checkpoint import TrainingState
from train.engine.clocks import Clocks
from train.engine.interval import LossAccumulator
from train.engine.metrics import ArrivalLog, MetricsLogger, log
from train.engine.numerics import NonFiniteCheck
from train.engine.stop import StopRequest
from train.engine.watchdog import HangWatchdog

Training = TypeVar("Training", Pretrain, Finetune)


@dataclass(frozen=True, kw_only=True)
class TrainingContext(Generic[Training]):
    """What the loop and the steps of a training share, whatever it is that learns."""

    attempt: Attempt[Training]
    layout: BatchLayout
    state: TrainingState
    clocks: Clocks
    interval: LossAccumulator
    metrics: MetricsLogger
    arrivals: ArrivalLog
    hang: HangWatchdog
    finite: NonFiniteCheck

    @property
    def at(self) -> dict[str, int]:
        """Where it is, as fields of a record."""
        return {"step": self.state.step, "images": self.state.images}

    def conclude(self, request: StopRequest) -> None:
        """Record how training ended, unless a newer attempt is there to do that."""
        conclude(self.metrics, request, self.at | self.clocks.fields())
        self.arrivals.close()


def begin_training(
    attempt: Attempt[Training], *, layout: BatchLayout, state: TrainingState, clocks: Clocks
) -> TrainingContext[Training]:
    """The course from `state` on, which holds the newest checkpoint; says that it has started."""
    config, ranks = attempt.config, attempt.ranks
    context = TrainingContext(
        attempt=attempt,
        layout=layout,
        state=state,
        clocks=clocks,
        interval=LossAccumulator(ranks.device),
        metrics=attempt.open_metrics(tensorboard=config.log.tensorboard),
        arrivals=ArrivalLog(attempt.folder, rank=ranks.rank),
        hang=HangWatchdog(attempt.folder, ranks=ranks, least_s=config.train.hang_s),
        finite=NonFiniteCheck(ranks.device),
    )
    context.metrics.event("started", **context.at)
    if state.step:
        log.info("resumed from step %d", state.step)
    return context
