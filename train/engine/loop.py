"""The training loop: steps until the last one or a stop request, and all that is due after each."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from runs.jobs import turn_end
from train.engine.attempt import Training, TrainingContext
from train.engine.checkpoint import CheckpointSaver
from train.engine.clocks import QueuePoint, region
from train.engine.distributed import Agreement, sum_over_ranks
from train.engine.metrics import IntervalSums, wall_time
from train.engine.part import Part
from train.engine.stop import StopRequest


class TrainStep(Protocol):
    """The step of one kind of training. All methods are collective."""

    def begin(self) -> None:
        """Prepare an attempt before its first step, on the clock `setup`."""

    def take(self, step: int) -> Tensor:
        """Take optimizer step `step`, from 1; return the gradient norm, on the device."""
        ...

    def fields(self, norm: Tensor) -> dict[str, Any]:
        """Return the fields of an interval's record; `norm` is the gradient norm of its last step.

        Scalar tensors on the device are copied without waiting for them.
        """
        ...


class ScheduledSave(Part):
    """Saves every `every` steps: after a profile, before the evaluations."""

    order, clock = 20, "save"

    def __init__(self, every: int, save: Callable[[], None]) -> None:
        self.every, self._save = every, save

    def after(self, step: int) -> None:
        """Save, or begin to."""
        self._save()


@dataclass(frozen=True, kw_only=True)
class _PendingRecord:
    """The record of an interval whose `end` the device may not have reached.

    `scalars` holds, on the host by then, the sum of this rank's losses and the tensors in `fields`.
    """

    fields: dict[str, Any]
    scalars: Tensor
    steps: int
    running: str
    end: QueuePoint


@dataclass(kw_only=True)
class Loop(Generic[Training]):
    """Trains, records and saves; `steps` knows the kind of training, `parts` what else it does."""

    context: TrainingContext[Training]
    steps: TrainStep
    parts: Sequence[Part]
    saver: CheckpointSaver

    def __post_init__(self) -> None:
        self._saved_at = self.context.state.step
        self._norm: Tensor | None = None
        self._pending: _PendingRecord | None = None
        save = ScheduledSave(self.context.attempt.config.checkpoint.every, self._save)
        self.parts = sorted([*self.parts, save], key=lambda part: part.order)

    def train(self) -> StopRequest:
        """Train to the last step, a turn's end or a request; save unless superseded; return it.

        It is `GO_ON` after the last step, and `PAUSE` after a turn.
        """
        context, agreement = self.context, Agreement()
        last, signals = context.attempt.config.train.steps, context.attempt.stop_signals
        end = min(last, turn_end() or last)
        with contextlib.closing(context.watchdog):
            self.steps.begin()
            for part in self.parts:
                part.begin()
            context.clocks.lap("setup", drain=True)
            context.device_clock.reached(context.device_clock.point())
            agreement.vote(signals.request())
            request = StopRequest(agreement.settle())
            while context.state.step < end and request is StopRequest.GO_ON:
                self._step()
                self._after_step()
                request = StopRequest(agreement.vote(signals.request()))
            context.watchdog.disarm()
            request = max(request, StopRequest(agreement.settle()))
            context.finite.check()
            self._write_record()
            if context.state.step >= last and request is not StopRequest.LEAVE:
                request = StopRequest.GO_ON
            elif request is not StopRequest.LEAVE:
                request = max(request, StopRequest.PAUSE)
                if context.state.step > self._saved_at:
                    self._record(drain=True, scheduled=False)
                    self._save()
                    context.clocks.lap("save", drain=True)
            for part in self.parts:
                part.close()
            self._finish_saving(request)
        return request

    def _step(self) -> None:
        context, step = self.context, self.context.state.step + 1
        for part in self.parts:
            if part.interrupts(step):
                self._record(drain=True)
            part.before(step)
        context.watchdog.begin_step(step)
        self._norm = self.steps.take(step)
        context.state.step = step
        context.state.images += context.attempt.config.train.global_batch
        context.losses.steps += 1
        context.clocks.lap("train")

    def _after_step(self) -> None:
        """Record the steps if that is due, then let the parts act that are due."""
        context, config, step = self.context, self.context.attempt.config, self.context.state.step
        self._write_record()
        last = step == config.train.steps
        due = [part for part in self.parts if part.is_due(step, last=last)]
        context.watchdog.progress()
        if due or step % config.log.every == 0:
            self._record(drain=bool(due))
        if due:
            context.watchdog.disarm()
            for part in due:
                self._let_act(part, step)
            # Rank 0 writes files alone; watched, the others would take that for a hang.
            dist.barrier()
            context.clocks.lap(due[-1].clock)
        self._record_saved()

    def _let_act(self, part: Part, step: int) -> None:
        """Let a part act, book its time, and record the fields that it returns."""
        fields = part.after(step)
        self.context.clocks.lap(part.clock, drain=True)
        if fields is not None:
            self.context.metrics.evaluation(self.context.at | fields)
            self.context.metrics.event("evaluated", step=step)

    def _record(self, *, drain: bool, scheduled: bool = True) -> None:
        """Record the steps since the last scheduled record, if there are any.

        Without `drain`, a GPU and its host go on: the numbers are copied meanwhile, and the record
        is written when the next step has been launched. In both cases the interval ends when the
        device has finished its last step (`train_s`); `data_s` is time of the host.

        After a record that is not `scheduled`, the checkpoint holds the sums, so that a resumed run
        records the means that an uninterrupted one records.
        """
        context, losses = self.context, self.context.losses
        on_gpu = context.attempt.ranks.device.type == "cuda"
        if drain:
            context.finite.check()
        self._write_record()
        if self._norm is None or not losses.steps:
            return
        context.clocks.lap("train", drain=drain)
        fields: dict[str, Any] = context.at | context.finite.host_bound()
        fields |= self.steps.fields(self._norm)
        for part in self.parts:
            fields |= part.fields()
        if on_gpu:
            fields["gpu_gb"] = torch.cuda.max_memory_allocated(context.attempt.ranks.device) / 1e9
        values = [losses.loss, *(value for value in fields.values() if isinstance(value, Tensor))]
        scalars = torch.stack([value.double() for value in values])
        self._pending = _PendingRecord(
            fields=fields | context.clocks.fields(),
            scalars=scalars.to("cpu", non_blocking=True),
            steps=losses.steps,
            running=context.clocks.running,
            end=context.device_clock.point(),
        )
        context.state.interval = IntervalSums()
        losses.restart(context.state.interval, rank=0, tensor=1)
        if drain or not on_gpu:
            sums = self._write_record()
            if not scheduled:
                context.state.interval = sums

    def _write_record(self) -> IntervalSums:
        """Write the record that waits for the device, if there is one; return its sums."""
        context, pending = self.context, self._pending
        if pending is None:
            return IntervalSums()
        self._pending = None
        train, tensor = context.attempt.config.train, context.layout.tensor
        end = context.device_clock.reached(pending.end)
        mine, *scalars = pending.scalars.tolist()
        loss = sum_over_ranks(torch.tensor(mine, dtype=torch.float64)).item() / tensor
        sums = IntervalSums(loss=loss, steps=pending.steps)
        fields = pending.fields | {"loss": sums.mean(global_batch=train.global_batch)}
        names = [name for name, value in fields.items() if isinstance(value, Tensor)]
        fields |= zip(names, scalars, strict=True)
        fields[pending.running] = round(fields[pending.running] + end - pending.end.queued, 6)
        context.metrics.step(fields | {"time": wall_time(end)}, steps=train.steps)
        return sums

    def _save(self) -> None:
        """Save a checkpoint, or begin to."""
        with region("save"):
            self.saver.save(self.context.state)
        self._saved_at = self.context.state.step
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
