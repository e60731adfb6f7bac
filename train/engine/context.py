"""The course of a training: how far it is, on which clocks, and who follows and watches it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from configs.checks.batch import Division
from configs.schema import Finetune, Pretrain
from train.engine.attempt import Attempt, conclude
from train.engine.checkpoint import TrainingState
from train.engine.clocks import Clocks
from train.engine.interval import Interval
from train.engine.metrics import Arrivals, Journal, log
from train.engine.numerics import FiniteWatch
from train.engine.stop import Wish
from train.engine.watchdog import HangWatch

Training = TypeVar("Training", Pretrain, Finetune)


@dataclass(frozen=True, kw_only=True)
class Course(Generic[Training]):
    """What the loop and the steps of a training share, whatever it is that learns."""

    attempt: Attempt[Training]
    division: Division
    state: TrainingState
    clocks: Clocks
    interval: Interval
    journal: Journal
    arrivals: Arrivals
    hang: HangWatch
    finite: FiniteWatch

    @property
    def at(self) -> dict[str, int]:
        """Where it is, as fields of a record."""
        return {"step": self.state.step, "images": self.state.images}

    def conclude(self, wish: Wish) -> None:
        """Record how training ended, unless a newer attempt is there to do that."""
        conclude(self.journal, wish, self.at | self.clocks.fields())
        self.arrivals.close()


def begin_course(
    attempt: Attempt[Training], *, division: Division, state: TrainingState, clocks: Clocks
) -> Course[Training]:
    """The course from `state` on, which holds the newest checkpoint; says that it has started."""
    config, ranks = attempt.config, attempt.ranks
    course = Course(
        attempt=attempt,
        division=division,
        state=state,
        clocks=clocks,
        interval=Interval(ranks.device),
        journal=attempt.open_journal(tensorboard=config.log.tensorboard),
        arrivals=Arrivals(attempt.folder, rank=ranks.rank),
        hang=HangWatch(attempt.folder, ranks=ranks, least_s=config.train.hang_s),
        finite=FiniteWatch(ranks.device),
    )
    course.journal.event("started", **course.at)
    if state.step:
        log.info("resumed from step %d", state.step)
    return course
