"""The course of a training: how far it is, on which clocks, and who follows and watches it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from configs.batch import Division
from configs.schema import Finetune, Pretrain
from train.attempt import Attempt, conclude
from train.checkpoint import TrainingState
from train.clocks import Clocks
from train.hang import HangWatch
from train.interval import Interval
from train.journal import Arrivals, Journal, log
from train.soundness import FiniteWatch
from train.stopping import Wish

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
