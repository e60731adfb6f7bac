"""The frame of an attempt at a run of any kind: logging, the work, and the word that it failed."""

from collections.abc import Callable
from typing import Protocol

from configs.load import Kind, expect
from configs.run import RunFolder
from train.checkpoint import TrainingState
from train.clocks import Clocks
from train.dist import Ranks, read_ranks
from train.failure import leave_note
from train.journal import Arrivals, Journal, log, start_logging
from train.stopping import ENDS, Wish


class Trained(Protocol):
    """What a training loop leaves that is to be told and closed."""

    state: TrainingState
    clocks: Clocks
    journal: Journal
    arrivals: Arrivals


Work = Callable[[RunFolder, Kind, Ranks, int], None]


def carry_out(run: RunFolder, kind: type[Kind], work: Work[Kind], *, number: int) -> int:
    """Do the `work` of attempt `number`; 0 whenever it left the run folder in order."""
    ranks = read_ranks()
    config = expect(run.config(number), kind, source=run.path)
    folder = run.attempt(number)
    start_logging(folder, rank=ranks.rank, console_ranks=config.log.console_ranks)
    try:
        work(run, config, ranks, number)
    except Exception as error:
        leave_note(folder, error, rank=ranks.rank)
        log.exception("rank %d failed: %s", ranks.rank, error)
        return 1
    return 0


def conclude(trainer: Trained, wish: Wish) -> None:
    """Record how training ended, unless a newer attempt is there to do that."""
    if wish is Wish.LEAVE:
        log.warning("a newer attempt has begun: leaving without a save")
    else:
        at = {"step": trainer.state.step, "images": trainer.state.images}
        trainer.journal.event(ENDS[wish], **at, **trainer.clocks.fields())
    trainer.journal.close()
    trainer.arrivals.close()
