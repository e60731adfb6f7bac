"""Fine-tuning by ai-toolkit, unmodified: a process of its own, steered and followed from here."""

import json
import tempfile
import time
from pathlib import Path

from configs.checks.aitoolkit import check_one_rank, check_wishes
from configs.checks.aitoolkit_home import Home, find_home
from configs.checks.prompts import filled, prompts_of
from configs.run.folder import RunFolder
from configs.schema import Finetune
from finetune.aitoolkit.checkpoint import Collector, LoraSnapshot, lay_out, newest_checkpoint
from finetune.aitoolkit.config import JOB, Workspace, their_config
from finetune.aitoolkit.dataset import lay_out_dataset
from finetune.aitoolkit.home import versions
from finetune.aitoolkit.job_db import JobTable
from finetune.aitoolkit.losses import LossLog
from finetune.aitoolkit.monitor import Monitor, Stop
from finetune.aitoolkit.process import Process
from finetune.aitoolkit.progress import StepRecords
from finetune.aitoolkit.timeline import Timeline
from train.engine.attempt import Attempt, finish, run_attempt
from train.engine.distributed import Ranks
from train.engine.environment import rank_placement
from train.engine.metrics import MetricsLogger, log
from train.engine.stop import StopRequest


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at fine-tuning by ai-toolkit; 0 whenever the run folder is in order."""
    return run_attempt(run, Finetune, _run, number=number)


def _run(attempt: Attempt[Finetune]) -> None:
    began = time.time()
    run, config, ranks = attempt.run, attempt.config, attempt.ranks
    check_one_rank(ranks.world)
    check_wishes(config)
    home = find_home()
    checkpoint = newest_checkpoint(run.checkpoints)
    metrics = attempt.open_metrics(tensorboard=config.log.tensorboard)
    run.note(attempt.number, engine="aitoolkit", **_facts(config, home, ranks))
    start = checkpoint.step if checkpoint else 0
    metrics.event("started", step=start, images=start * config.train.global_batch)
    timeline = Timeline(began=began, before=checkpoint.seconds if checkpoint else {})
    # Beside the run: sqlite locks badly on shared file systems, and of files whose path holds
    # certain letters (_cn, _t2i, _LoRA) ai-toolkit takes none up.
    with tempfile.TemporaryDirectory(prefix="ditbench-") as folder:
        desk = _lay_out_desk(attempt, checkpoint, Path(folder))
        drive = _start(attempt, home, desk, metrics, timeline, start=start)
        try:
            request = drive.until_it_leaves()
        finally:
            drive.process.kill()
    saved = drive.stop.saved
    at = {"step": saved, "images": saved * config.train.global_batch}
    finish(metrics, request, at | timeline.now().fields())
    if request is not StopRequest.LEAVE:
        drive.collector.tidy()


def _lay_out_desk(
    attempt: Attempt[Finetune], checkpoint: LoraSnapshot | None, folder: Path
) -> Workspace:
    """Where ai-toolkit finds the images and the checkpoint, and leaves what it makes."""
    kept = _kept(attempt)
    kept.mkdir()
    if checkpoint is not None:
        lay_out(checkpoint, kept / JOB)
    dataset = attempt.run.path / "cache" / "aitoolkit"
    lay_out_dataset(attempt.config, dataset)
    desk = Workspace(
        output=folder / "output", database=folder / "job.db", dataset=folder / "dataset"
    )
    desk.output.symlink_to(kept)
    desk.dataset.symlink_to(dataset)
    return desk


def _start(
    attempt: Attempt[Finetune],
    home: Home,
    desk: Workspace,
    metrics: MetricsLogger,
    timeline: Timeline,
    *,
    start: int,
) -> Monitor:
    """ai-toolkit started, to go on after `start` steps."""
    run, config, kept = attempt.run, attempt.config, _kept(attempt)
    root = kept / JOB
    table = JobTable(desk.database)
    prompts = prompts_of(config.sample.prompts, config.sample.prompts_file)
    filled_in = [filled(prompt, config.data.trigger) for prompt in prompts]
    theirs = their_config(config, desk, prompts=filled_in, start=start, attempt=attempt.number)
    # As JSON: YAML 1.1, which it reads, takes 1e-4 for text. An escaped dollar is not looked up
    # in the environment.
    asked = kept / "config.json"
    asked.write_text(json.dumps(theirs, indent=1).replace("$", "\\u0024"), encoding="utf-8")
    log.info("starting ai-toolkit; its own words: %s", kept / "output.log")
    every, last, images = config.log.every, config.train.steps, config.train.global_batch
    return Monitor(
        run=run,
        config=config,
        start=start,
        root=root,
        table=table,
        process=Process(home, asked, output=kept / "output.log"),
        timeline=timeline,
        losses=LossLog(root / "loss_log.db"),
        steps=StepRecords(every=every, last=last, images_per_step=images),
        collector=Collector(root, run, keep=config.checkpoint.keep),
        metrics=metrics,
        watch=attempt.stop_signals,
        stop=Stop(saved=start),
    )


def _kept(attempt: Attempt[Finetune]) -> Path:
    """What of ai-toolkit's own stays in the run."""
    return attempt.folder / "aitoolkit"


def _facts(config: Finetune, home: Home, ranks: Ranks) -> dict[str, object]:
    batch = config.train.micro_batch or config.train.global_batch
    return {
        "placement": [rank_placement(ranks)],
        "versions": versions(home),
        "ranks": 1,
        "replicate": 1,
        "shard": 1,
        "tensor": 1,
        "micro_batch": batch,
        "accumulation": config.train.global_batch // batch,
    }
