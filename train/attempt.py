"""The frame of an attempt at a run of any kind: logging, the work, and the word that it failed."""

from collections.abc import Callable

from configs.load import Kind, expect
from configs.run import RunFolder
from train.dist import Ranks, read_ranks
from train.failure import leave_note
from train.journal import log, start_logging

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
