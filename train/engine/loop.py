"""The training loop: steps until the last one or a stop request, and all that is due after each."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from train.engine.attempt import Training, TrainingContext
from train.engine.checkpoint import CheckpointSaver
from train.engine.distributed import Agreement
from train.engine.metrics import IntervalSums
from train.engine.profiler import ProfileWindow, region
from train.engine.stop import StopRequest


class TrainStep(Protocol):
    """The step of one kind of training. All methods are collective."""

    def begin(self) -> None:
        """Prepare an attempt before its first step, on the clock `setup`."""

    def take(self, step: int) -> Tensor:
        """Take optimizer step `step`, from 1; return the gradient norm, on the device."""
        ...

    def fields(self, norm: Tensor) -> dict[str, Any]:
        """Return the fields of an interval's record; `norm` is that of its last step."""
        ...


class Evaluator(Protocol):
    """The evaluations of one kind of training. Collective."""

    def due_evaluations(self, step: int) -> list[Callable[[], None]]:
        """Return the evaluations due after a step, in order; each books its own time."""
        ...


@dataclass(kw_only=True)
class Loop(Generic[Training]):
    """Trains, records, saves and evaluates; `steps` and `evaluator` know the kind of training."""

    context: TrainingContext[Training]
    steps: TrainStep
    evaluator: Evaluator
    saver: CheckpointSaver
    window: ProfileWindow

    def __post_init__(self) -> None:
        self._saved_at = self.context.state.step
        self._norm: Tensor | None = None

    def train(self) -> StopRequest:
        """Train to the last step or a stop request, and save unless a newer attempt runs.

        Return the request that ended training, or `GO_ON` after the last step.
        """
        context, agreement = self.context, Agreement()
        last, signals = context.attempt.config.train.steps, context.attempt.stop_signals
        with contextlib.closing(context.watchdog):
            self.steps.begin()
            context.clocks.lap("setup", drain=True)
            context.arrivals.device_is_drained()
            agreement.vote(signals.request())
            request = StopRequest(agreement.settle())
            while context.state.step < last and request is StopRequest.GO_ON:
                self._step()
                self._after_step()
                request = StopRequest(agreement.vote(signals.request()))
            context.watchdog.disarm()
            request = max(request, StopRequest(agreement.settle()))
            context.finite.check()
            if context.state.step == last and request is not StopRequest.LEAVE:
                request = StopRequest.GO_ON
            elif request is not StopRequest.LEAVE and context.state.step > self._saved_at:
                self._record(scheduled=False)
                self._save()
            self.window.close()
            self._finish_saving(request)
        return request

    def _step(self) -> None:
        context, step = self.context, self.context.state.step + 1
        if self.window.opens_before(step):
            # Profiled steps get a record of their own.
            self._record()
            self.window.open()
        context.watchdog.begin_step(step)
        self._norm = self.steps.take(step)
        context.state.step = step
        context.state.images += context.attempt.config.train.global_batch
        context.losses.steps += 1
        context.clocks.lap("train")

    def _after_step(self) -> None:
        """Record, save and evaluate if that is due."""
        context, config, step = self.context, self.context.attempt.config, self.context.state.step
        saves = step % config.checkpoint.every == 0 or step == config.train.steps
        evaluations = self.evaluator.due_evaluations(step)
        context.watchdog.progress()
        if saves or evaluations:
            context.watchdog.disarm()
        closes = self.window.closes_after_step()
        if closes or saves or evaluations or step % config.log.every == 0:
            self._record()
        if closes:
            self.window.close()
        if saves:
            self._save()
        for evaluate in evaluations:
            evaluate()
        if saves or evaluations:
            # Rank 0 writes files alone; watched, the others would take that for a hang.
            dist.barrier()
            context.clocks.lap("eval" if evaluations else "save")
        self._record_saved()

    def _record(self, *, scheduled: bool = True) -> None:
        """Record the steps since the last scheduled record, if there are any.

        After a record that is not `scheduled`, the checkpoint holds the sums, so that a resumed run
        records the means that an uninterrupted one records.
        """
        context, config = self.context, self.context.attempt.config
        if self._norm is None or not context.losses.steps:
            return
        context.finite.check()
        context.clocks.lap("train", drain=True)
        tensor, ranks = context.layout.tensor, context.attempt.ranks
        sums = context.losses.totals(tensor=tensor)
        context.state.interval = IntervalSums() if scheduled else sums
        context.losses.restart(context.state.interval, rank=ranks.rank, tensor=tensor)
        fields = context.at | sums.fields(global_batch=config.train.global_batch)
        fields |= self.steps.fields(self._norm)
        if ranks.device.type == "cuda":
            fields["gpu_gb"] = torch.cuda.max_memory_allocated(ranks.device) / 1e9
        context.arrivals.write(context.state.step)
        context.metrics.step(fields | context.clocks.fields(), steps=config.train.steps)

    def _save(self) -> None:
        """Save a checkpoint, or begin to."""
        with region("save"):
            self.saver.save(self.context.state)
        self._saved_at = self.context.state.step
        self.context.clocks.lap("save", drain=True)
        self._record_saved()

    def _record_saved(self) -> None:
        """Record the saves that have finished since the last call."""
        for saved in self.saver.finished():
            self.context.metrics.event("saved", step=saved.step, images=saved.images)

    def _finish_saving(self, request: StopRequest) -> None:
        if request is StopRequest.LEAVE:
            self.saver.abandon()
            return
        self.saver.wait()
        self.context.clocks.lap("save")
        self._record_saved()
