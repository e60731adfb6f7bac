"""An attempt at a run of any kind: what it is given, and the word of how it ended."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from configs.load import Kind, expect
from configs.run.folder import RunFolder
from train.engine.distributed import Ranks, read_ranks
from train.engine.environment import placement
from train.engine.failure import leave_note
from train.engine.metrics import MetricsLogger, log, start_logging
from train.engine.stop import ENDS, StopRequest, StopSignals


@dataclass(frozen=True, kw_only=True)
class Attempt(Generic[Kind]):
    """One attempt at a run, the place of this rank in it, and who may wish it to leave."""

    run: RunFolder
    number: int
    config: Kind
    ranks: Ranks
    watch: StopSignals

    @property
    def folder(self) -> Path:
        """Where it keeps what is its own."""
        return self.run.attempt(self.number)

    def is_superseded(self) -> bool:
        """Whether a newer attempt has begun."""
        return self.run.attempt(self.number + 1).exists()

    def note(self, **facts: Any) -> None:
        """Tell the manifest where every rank is, and `facts`; every rank must ask."""
        places = placement(self.ranks)
        if places is not None:
            self.run.note(self.number, placement=places, **facts)

    def open_metrics(self, *, tensorboard: bool = False) -> MetricsLogger:
        """Its journal, to be closed by `conclude`."""
        return MetricsLogger(
            self.run, attempt=self.number, rank=self.ranks.rank, tensorboard=tensorboard
        )


Work = Callable[[Attempt[Kind]], None]


def carry_out(run: RunFolder, kind: type[Kind], work: Work[Kind], *, number: int) -> int:
    """Do the `work` of attempt `number`; 0 whenever it left the run folder in order."""
    ranks = read_ranks()
    config = expect(run.config(number), kind, source=run.path)
    folder = run.attempt(number)
    start_logging(folder, rank=ranks.rank, console_ranks=config.log.console_ranks)
    try:
        watch = StopSignals(run, attempt=number)
        work(Attempt(run=run, number=number, config=config, ranks=ranks, watch=watch))
    except Exception as error:
        leave_note(folder, error, rank=ranks.rank)
        log.exception("rank %d failed: %s", ranks.rank, error)
        return 1
    return 0


def conclude(metrics: MetricsLogger, request: StopRequest, fields: dict[str, Any]) -> None:
    """Record how the work ended, with `fields`, unless a newer attempt is there to do that."""
    if request is StopRequest.LEAVE:
        log.warning("a newer attempt has begun: leaving")
    else:
        metrics.event(ENDS[request], **fields)
    metrics.close()
