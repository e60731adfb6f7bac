"""Monitor ai-toolkit: turn its updates into records and files, and stop requests into its own."""

import re
import shutil
import time
from pathlib import Path
from typing import Any

from configs.schema import Finetune
from finetune.aitoolkit.checkpoint import CheckpointCollector
from finetune.aitoolkit.config import validation_period
from finetune.aitoolkit.job_db import JobTable, JobUpdate
from finetune.aitoolkit.process import Process, failure
from finetune.aitoolkit.progress import ClockReading, LossLog, StepRecords, Timeline
from train.engine.attempt import Attempt
from train.engine.failure import RunFailure
from train.engine.metrics import MetricsLogger, log
from train.engine.stop import StopRequest

POLL_S = 0.1
# The time to leave once nothing is left to save. Loading a model takes longer and is killed.
LEAVE_S = 30.0
_TAIL_LINES = 40
# A hang is a step that takes five times the mean, which is known after two steps.
_KNOWN_STEPS, _MANY_STEPS = 2, 5
_ALL_DRAWN = re.compile(r"Generating images - (\d+)/\1")
_SAMPLE = re.compile(r"(\d+)__(\d{9})_(\d+)\.(\w+)")


class Monitor:
    """Follows the `process` of one attempt, which resumes after `start` steps, to its end.

    `root` is ai-toolkit's output folder. `saved` counts the steps in the newest checkpoint.
    """

    def __init__(
        self,
        attempt: Attempt[Finetune],
        process: Process,
        *,
        root: Path,
        job: JobTable,
        timeline: Timeline,
        metrics: MetricsLogger,
        start: int,
    ) -> None:
        config = attempt.config
        self._attempt, self._process, self._root, self._job = attempt, process, root, job
        self._timeline, self._metrics, self._start = timeline, metrics, start
        self._losses = LossLog(root / "loss_log.db")
        every, last, batch = config.log.every, config.train.steps, config.train.global_batch
        self._steps = StepRecords(every=every, last=last, images_per_step=batch)
        self.collector = CheckpointCollector(root, attempt.run, keep=config.checkpoint.keep)
        self.saved = start
        self._last: JobUpdate | None = None
        self._last_time = time.monotonic()
        self._is_training = False
        # The current save was requested here, not scheduled by ai-toolkit.
        self._saving_on_request = False
        # The newest save that has ended but is not collected, and whether it was requested.
        self._ended_save: tuple[ClockReading, bool] | None = None
        # A graceful stop: request a save, wait until it is made, leave by a deadline.
        self._is_save_requested = False
        self._is_save_made = False
        self._deadline: float | None = None

    def run(self) -> StopRequest:
        """Return the stop request that ended the process; raise `RunFailure` if it failed."""
        while self._process.status() is None:
            self._poll()
            self._check_hang()
            if self._handle_stop() is StopRequest.LEAVE:
                self._process.kill()
                return StopRequest.LEAVE
            time.sleep(POLL_S)
        self._poll(is_over=True)
        return self._outcome()

    def at(self, step: int) -> dict[str, Any]:
        """Return a step and its images as fields of a record."""
        return {"step": step, "images": step * self._attempt.config.train.global_batch}

    def _outcome(self) -> StopRequest:
        last = self._last
        if last and last.status == "completed":
            return StopRequest.GO_ON
        if self._deadline is not None:
            return self._attempt.stop_signals.request()
        info = last.info if last and last.status == "error" else ""
        status = self._process.status()
        assert status is not None
        output = self._process.output_tail()
        # A progress bar redraws its line: keep the last drawing.
        lines = [line.rpartition("\r")[2] for line in output.splitlines()][-_TAIL_LINES:]
        log.error(
            "ai-toolkit exited with status %d; its output ends:\n%s", status, "\n".join(lines)
        )
        raise failure(status, info=info, output=output)

    def _poll(self, *, is_over: bool = False) -> None:
        for update in self._job.new_updates():
            self._handle_update(update)
            self._last_time = time.monotonic()
        if self._timeline.phase != "save" or is_over:
            self._collect_saves()
        logged = self._losses.new_steps()
        self._steps.add_logged(logged)
        for step in logged:
            if step.held_out is not None:
                self._record_held_out(step.step, step.held_out)
        for record in self._steps.records(is_over=is_over):
            self._metrics.step(record, steps=self._attempt.config.train.steps)

    def _check_hang(self) -> None:
        """Raise `RunFailure` if training steps have stopped; other phases have no limit."""
        limit_s, done = self._attempt.config.train.hang_s, self._timeline.step - self._start
        if limit_s is None or self._timeline.phase != "train" or done < _KNOWN_STEPS:
            return
        silent_s = time.monotonic() - self._last_time
        if silent_s > max(limit_s, _MANY_STEPS * self._timeline.trained_s / done):
            raise RunFailure(
                "hang",
                f"ai-toolkit took no step for {silent_s:.0f} s after step {self._timeline.step}",
            )

    def _handle_update(self, update: JobUpdate) -> None:
        phase, info, step = self._timeline.phase, self._timeline.info, self._timeline.step
        reading = self._timeline.add(update)
        if self._last and self._last.is_save_requested and not update.is_save_requested:
            self._saving_on_request = True
        self._last = update
        if self._is_training and update.step > step:
            self._steps.end_step(reading)
        if not self._is_training and self._timeline.phase == "train":
            self._is_training = True
            if update.step != self._start:
                raise RunFailure(
                    "crash", f"ai-toolkit resumes from step {update.step} instead of {self._start}"
                )
        if phase == "save" and self._timeline.phase != "save":
            self._ended_save = reading, self._saving_on_request
            self._saving_on_request = False
        if self._timeline.info != info:
            log.info("%s", self._timeline.info)
            if _ALL_DRAWN.fullmatch(self._timeline.info):
                self._keep_samples(update.step)

    def _collect_saves(self) -> None:
        """Adopt the newest finished save; earlier ones have lost their optimizer."""
        if self._ended_save is None:
            return
        (reading, is_requested), self._ended_save = self._ended_save, None
        for save in self.collector.new_saves(last=reading.step):
            if save.step != reading.step:
                continue
            # A scheduled save is made after a step but before the step is counted.
            done = save.step if is_requested or save.is_last else save.step + 1
            self.collector.adopt(save, step=done, seconds=reading.seconds)
            self.saved = done
            self._is_save_made |= is_requested
            self._metrics.event("saved", **self.at(done), **reading.fields())

    def _record_held_out(self, step: int, loss: float) -> None:
        """Record the loss on images held out; the first step of a start logs it one step late."""
        is_late = step == self._start + 2 and (step - 1) % validation_period(self._attempt.config)
        self._metrics.evaluation(self.at(step - bool(is_late)) | {"held_out_loss": loss})

    def _keep_samples(self, counted: int) -> None:
        """Copy the samples drawn at a step that ai-toolkit counted into the run, and record them.

        Samples between two steps are drawn before the step is counted.
        """
        run, steps = self._attempt.run, self._attempt.config.train.steps
        step = counted if counted in (self._start, steps) else counted + 1
        newest: dict[int, Path] = {}
        for file in sorted((self._root / "samples").iterdir()):
            match = _SAMPLE.fullmatch(file.name)
            if match and int(match[2]) == counted:
                newest[int(match[3])] = file
        for prompt, file in newest.items():
            # A video is an animated webp.
            kept = run.prompt_sample(prompt, step).with_suffix(file.suffix)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept)
        self._metrics.evaluation(self.at(step) | {"drawn_images": len(newest)})

    def _handle_stop(self) -> StopRequest:
        """Pass a stop request on to ai-toolkit; kill it if it does not leave by the deadline."""
        request = self._attempt.stop_signals.request()
        if request in (StopRequest.GO_ON, StopRequest.LEAVE):
            return request
        if self._deadline is None:
            self._request_stop()
        elif time.monotonic() > self._deadline:
            log.warning("ai-toolkit did not leave within %.0f s: killed", LEAVE_S)
            self._process.kill()
        return request

    def _request_stop(self) -> None:
        """Request a save if there is something to save, and then that it leaves."""
        if self.saved < self._timeline.step and not self._is_save_made:
            if not self._is_save_requested:
                log.info("asking ai-toolkit to save")
                self._job.request_save()
                self._is_save_requested = True
            return
        log.info("asking ai-toolkit to leave")
        self._job.request_leave()
        self._deadline = time.monotonic() + LEAVE_S
