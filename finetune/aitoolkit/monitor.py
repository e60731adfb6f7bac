"""Watches ai-toolkit work: changes become records and files, a wish to leave a graceful stop."""

import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs.run.folder import RunFolder
from configs.schema import Finetune
from finetune.aitoolkit.checkpoint import Collector, metadata_step
from finetune.aitoolkit.config import JOB
from finetune.aitoolkit.failure import failure
from finetune.aitoolkit.job_db import Change, JobTable
from finetune.aitoolkit.losses import LossLog
from finetune.aitoolkit.process import Process
from finetune.aitoolkit.progress import StepRecords
from finetune.aitoolkit.timeline import Moment, SamplingTime, Timeline
from train.engine.failure import RunFailure
from train.engine.metrics import MetricsLogger, log
from train.engine.stop import StopRequest, StopSignals

POLL_S = 0.1
# How long it may take to leave once it has nothing left to save; loading a model takes longer.
LEAVE_S = 30.0
_LAST_LINES = 40
# Of fewer steps nobody can tell how long one takes; so many times that is too long for one.
_KNOWN_STEPS, _MANY_STEPS = 2, 5
_SAMPLE = re.compile(r"(\d+)__(\d{9})_(\d+)\.png")


@dataclass(kw_only=True)
class Stop:
    """How far a graceful stop is: a save asked for, then made, then to leave by a deadline.

    `saved` counts the steps in the newest checkpoint, whoever wished for that.
    """

    saved: int
    is_save_asked: bool = False
    is_save_made: bool = False
    deadline: float | None = None


@dataclass(kw_only=True)
class Monitor:
    """One attempt at a run that goes on after `start` steps, from its start to its end."""

    run: RunFolder
    config: Finetune
    start: int
    root: Path
    table: JobTable
    process: Process
    timeline: Timeline
    losses: LossLog
    steps: StepRecords
    collector: Collector
    metrics: MetricsLogger
    watch: StopSignals
    stop: Stop
    _last: Change | None = None
    _moved: float = field(default_factory=time.monotonic)
    _is_training: bool = False
    _is_save_ours: bool = False
    _saves: list[tuple[int, bool, Moment]] = field(default_factory=list)

    def until_it_leaves(self) -> StopRequest:
        """Follow it to its end; the wish that it left for, `RunFailure` where it failed."""
        while self.process.status() is None:
            self._look()
            self._feel_pulse()
            if self._steer() is StopRequest.LEAVE:
                self.process.kill()
                return StopRequest.LEAVE
            time.sleep(POLL_S)
        self._look(is_over=True)
        return self._verdict()

    def _verdict(self) -> StopRequest:
        last = self._last
        if last and last.status == "completed":
            return StopRequest.GO_ON
        if self.stop.deadline is not None:
            return self.watch.request()
        info = last.info if last and last.status == "error" else ""
        status = self.process.status()
        assert status is not None
        words = self.process.last_words()
        log.error("ai-toolkit left with status %d; its last words:\n%s", status, _end_of(words))
        raise failure(status, info=info, words=words)

    def _look(self, *, is_over: bool = False) -> None:
        for change in self.table.changes():
            self._follow(change)
            self._moved = time.monotonic()
        if self.timeline.phase != "save" or is_over:
            self._take_saves()
        self.steps.log(self.losses.new())
        for record in self.steps.records(is_over=is_over):
            self.metrics.step(record, steps=self.config.train.steps)

    def _feel_pulse(self) -> None:
        """Fail where steps have stopped; loading, saving and drawing may take their time."""
        least_s, taken = self.config.train.hang_s, self.timeline.step - self.start
        if least_s is None or self.timeline.phase != "train" or taken < _KNOWN_STEPS:
            return
        still_s = time.monotonic() - self._moved
        if still_s > max(least_s, _MANY_STEPS * self.timeline.trained_s / taken):
            raise RunFailure(
                "hang",
                f"ai-toolkit took no step for {still_s:.0f} s after step {self.timeline.step}",
            )

    def _follow(self, change: Change) -> None:
        before, said, step = self.timeline.phase, self.timeline.info, self.timeline.step
        moment = self.timeline.take(change)
        if self._last and self._last.is_save_asked and not change.is_save_asked:
            self._is_save_ours = True
        self._last = change
        if self._is_training and change.step > step:
            self.steps.end_of_step(moment)
        if not self._is_training and self.timeline.phase == "train":
            self._begin(change)
        if before == "save" and self.timeline.phase != "save":
            self._saves.append((change.step, self._is_save_ours, moment))
            self._is_save_ours = False
        if self.timeline.info != said:
            log.info("%s", self.timeline.info)
        for drawn in self.timeline.drawn:
            self._show(drawn)
        self.timeline.drawn.clear()

    def _begin(self, change: Change) -> None:
        """Training begins: from where it was told to, or not at all."""
        self._is_training = True
        if change.step != self.start:
            raise RunFailure(
                "crash",
                f"ai-toolkit goes on from step {change.step}, in place of {self.start}",
            )

    def _take_saves(self) -> None:
        """Take over the files of saves that have ended; the optimizer is the newest one's."""
        if not self._saves:
            return
        step, is_ours, moment = self._saves[-1]
        self._saves.clear()
        for lora in self.collector.new():
            told = metadata_step(lora)
            is_last = lora.stem == JOB
            if told != step:
                self.collector.pass_over(lora)
                continue
            # A scheduled save comes a step before it is counted.
            done = step if is_ours or is_last else step + 1
            self.collector.take(lora, step=done, seconds=moment.seconds)
            self.stop.saved = done
            self.stop.is_save_made |= is_ours
            self.metrics.event("saved", **self._at(done), **moment.fields())

    def _show(self, drawn: SamplingTime) -> None:
        """Keep the samples that were drawn by the prompt and the steps that had been done."""
        ends = (self.start, self.config.train.steps)
        step = drawn.step if drawn.step in ends else drawn.step + 1
        newest: dict[int, Path] = {}
        for file in sorted((self.root / "samples").glob("*.png")):
            match = _SAMPLE.fullmatch(file.name)
            if match and int(match[2]) == drawn.step:
                newest[int(match[3])] = file
        for prompt, file in newest.items():
            kept = self.run.prompt_sample(prompt, step)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept)
        self.metrics.evaluation(
            {
                **self._at(step),
                "drawn_images": drawn.images,
                "drawn_s": round(drawn.seconds, 6),
                "first_image_s": round(drawn.first_s, 6),
            }
        )

    def _steer(self) -> StopRequest:
        """Let it leave where somebody wishes so: with a save, where there is something to save."""
        request = self.watch.request()
        if request in (StopRequest.GO_ON, StopRequest.LEAVE):
            return request
        if self.stop.deadline is None:
            self._ask()
        elif time.monotonic() > self.stop.deadline:
            log.warning("ai-toolkit did not leave in %.0f s: killed", LEAVE_S)
            self.process.kill()
        return request

    def _ask(self) -> None:
        if self.stop.saved < self.timeline.step and not self.stop.is_save_made:
            if not self.stop.is_save_asked:
                log.info("asking ai-toolkit to save")
                self.table.ask_to_save()
                self.stop.is_save_asked = True
            return
        log.info("asking ai-toolkit to leave")
        self.table.ask_to_leave()
        self.stop.deadline = time.monotonic() + LEAVE_S

    def _at(self, step: int) -> dict[str, Any]:
        return {"step": step, "images": step * self.config.train.global_batch}


def _end_of(words: str) -> str:
    """The last lines of an output, of a redrawn bar only what was drawn last."""
    lines = [line.rpartition("\r")[2] for line in words.splitlines()]
    return "\n".join(lines[-_LAST_LINES:])
