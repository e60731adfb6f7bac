"""One attempt at a run of any kind, and the context that a training shares within it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from configs.checks.batch import BatchLayout
from configs.load import Kind
from configs.schema import Finetune, Pretrain
from runs.folder import RunFolder
from train.engine.checkpoint import CheckpointState
from train.engine.clocks import Clocks, DeviceClock
from train.engine.distributed import Ranks, rank_number, read_ranks
from train.engine.environment import placement
from train.engine.failure import write_error
from train.engine.metrics import LossAccumulator, MetricsLogger, log, start_logging
from train.engine.numerics import NonFiniteCheck
from train.engine.stop import END_EVENTS, StopRequest, StopSignals
from train.engine.watchdog import HangWatchdog

Training = TypeVar("Training", Pretrain, Finetune)


@dataclass(frozen=True, kw_only=True)
class Attempt(Generic[Kind]):
    """One attempt at a run, as one of its ranks sees it."""

    run: RunFolder
    number: int
    config: Kind
    ranks: Ranks
    stop_signals: StopSignals

    @property
    def folder(self) -> Path:
        """The attempt's own folder inside the run folder."""
        return self.run.attempt(self.number)

    def is_superseded(self) -> bool:
        """Return whether a newer attempt has begun."""
        return self.run.attempt(self.number + 1).exists()

    def note(self, **facts: Any) -> None:
        """Write the placement of all ranks and `facts` to the manifest. Collective."""
        places = placement(self.ranks)
        if places is not None:
            self.run.note(self.number, placement=places, **facts)

    def open_metrics(self, *, tensorboard: bool = False) -> MetricsLogger:
        """Open the metrics logger of this attempt; `finish` closes it."""
        return MetricsLogger(
            self.run, attempt=self.number, rank=self.ranks.rank, tensorboard=tensorboard
        )


def run_attempt(run: RunFolder, work: Callable[[Attempt[Any]], None], *, number: int) -> int:
    """Do the `work` of attempt `number`; return 0 unless it raised.

    An exception is logged and written to `error.json`, unless a newer attempt has begun.
    """
    rank = rank_number()
    config = run.config(number)
    folder = run.attempt(number)
    start_logging(folder, rank=rank)
    try:
        ranks = read_ranks()
        signals = StopSignals(run, attempt=number)
        work(Attempt(run=run, number=number, config=config, ranks=ranks, stop_signals=signals))
    except Exception as error:
        if run.attempt(number + 1).exists():
            log.warning("a newer attempt has begun: leaving (%s)", error)
            return 0
        if not folder.is_dir():
            log.error("%s: the folder of the run is gone", run.path)
            return 1
        write_error(folder, error, rank=rank)
        log.exception("rank %d failed: %s", rank, error)
        return 1
    return 0


def finish(metrics: MetricsLogger, request: StopRequest, fields: dict[str, Any]) -> None:
    """Close `metrics` with the record of the end and `fields`, unless a newer attempt runs."""
    if request is StopRequest.LEAVE:
        log.warning("a newer attempt has begun: leaving")
    else:
        metrics.event(END_EVENTS[request], **fields)
    metrics.close()


@dataclass(frozen=True, kw_only=True)
class TrainingContext(Generic[Training]):
    """Shared by the loop, the step and the evaluator of one training."""

    attempt: Attempt[Training]
    layout: BatchLayout
    state: CheckpointState
    clocks: Clocks
    device_clock: DeviceClock
    losses: LossAccumulator
    metrics: MetricsLogger
    watchdog: HangWatchdog
    finite: NonFiniteCheck

    @property
    def at(self) -> dict[str, int]:
        """The progress so far, as fields of a record."""
        return {"step": self.state.step, "images": self.state.images}

    def finish(self, request: StopRequest) -> None:
        """Record how training ended, unless a newer attempt runs, and close the log."""
        finish(self.metrics, request, self.at | self.clocks.fields())


def begin_training(
    attempt: Attempt[Training], *, layout: BatchLayout, state: CheckpointState, clocks: Clocks
) -> TrainingContext[Training]:
    """Make the context of a training that goes on from `state`, and record that it has started."""
    config, ranks = attempt.config, attempt.ranks
    device_clock = DeviceClock(ranks.device)
    context = TrainingContext(
        attempt=attempt,
        layout=layout,
        state=state,
        clocks=clocks,
        device_clock=device_clock,
        losses=LossAccumulator(ranks.device),
        metrics=attempt.open_metrics(tensorboard=config.log.tensorboard),
        watchdog=HangWatchdog(attempt.folder, ranks=ranks, least_s=config.train.hang_s),
        finite=NonFiniteCheck(ranks.device),
    )
    context.losses.restart(state.interval, rank=ranks.rank, tensor=layout.tensor)
    context.metrics.event("started", **context.at)
    if state.step:
        log.info("resumed from step %d", state.step)
    return context
