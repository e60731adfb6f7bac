"""One attempt at a fine-tuning by ai-toolkit: prepare its files, start it, monitor it."""

import json
import tempfile
import time
from pathlib import Path

from configs.checks.aitoolkit import check_one_rank, check_supported
from configs.checks.aitoolkit_source import Home, find_home
from configs.schema import Finetune
from finetune.aitoolkit.checkpoint import LoraSnapshot, lay_out, newest_checkpoint
from finetune.aitoolkit.config import JOB, Workspace, lay_out_dataset, toolkit_config
from finetune.aitoolkit.job_db import JobTable
from finetune.aitoolkit.monitor import Monitor
from finetune.aitoolkit.process import Process, versions
from finetune.aitoolkit.progress import Timeline
from train.engine.attempt import Attempt, finish
from train.engine.distributed import Ranks
from train.engine.environment import rank_placement
from train.engine.metrics import log
from train.engine.stop import StopRequest


def carry_out(attempt: Attempt[Finetune]) -> None:
    """Carry out an attempt by ai-toolkit."""
    began = time.time()
    run, config, ranks = attempt.run, attempt.config, attempt.ranks
    check_one_rank(ranks.world)
    check_supported(config)
    home = find_home()
    checkpoint = newest_checkpoint(run.checkpoints)
    metrics = attempt.open_metrics(tensorboard=config.log.tensorboard)
    run.note(attempt.number, engine="aitoolkit", **_facts(config, home, ranks))
    start = checkpoint.step if checkpoint else 0
    metrics.event("started", step=start, images=start * config.train.global_batch)
    timeline = Timeline(began=began, before=checkpoint.seconds if checkpoint else {})
    # The part of ai-toolkit's output that stays in the run.
    kept = attempt.folder / "aitoolkit"
    # In local storage: sqlite locks badly on shared file systems, and ai-toolkit ignores files
    # whose path contains certain strings (_cn, _t2i, _LoRA).
    with tempfile.TemporaryDirectory(prefix="ditbench-") as folder:
        workspace = _lay_out_workspace(attempt, kept, checkpoint, Path(folder))
        job = JobTable(workspace.database)
        config_file = kept / "config.json"
        _write_config(attempt, workspace, config_file, start=start)
        log.info("starting ai-toolkit; its output: %s", kept / "output.log")
        with Process(home, config_file, output=kept / "output.log") as process:
            monitor = Monitor(
                attempt,
                process,
                root=kept / JOB,
                job=job,
                timeline=timeline,
                metrics=metrics,
                start=start,
            )
            request = monitor.run()
    finish(metrics, request, monitor.at(monitor.saved) | timeline.now().fields())
    if request is not StopRequest.LEAVE:
        monitor.collector.clean_up()


def _lay_out_workspace(
    attempt: Attempt[Finetune], kept: Path, checkpoint: LoraSnapshot | None, folder: Path
) -> Workspace:
    """Prepare the images, the checkpoint and the output folder of ai-toolkit."""
    kept.mkdir()
    if checkpoint is not None:
        lay_out(checkpoint, kept / JOB)
    dataset = attempt.run.path / "cache" / "aitoolkit"
    lay_out_dataset(attempt.config, dataset)
    workspace = Workspace(
        output=folder / "output", database=folder / "job.db", dataset=folder / "dataset"
    )
    workspace.output.symlink_to(kept)
    workspace.dataset.symlink_to(dataset)
    return workspace


def _write_config(
    attempt: Attempt[Finetune], workspace: Workspace, file: Path, *, start: int
) -> None:
    """Write ai-toolkit's config.

    As JSON, because ai-toolkit's YAML 1.1 reads 1e-4 as text. The dollar signs are escaped, or it
    would substitute environment variables.
    """
    config = toolkit_config(attempt.config, workspace, start=start, attempt=attempt.number)
    file.write_text(json.dumps(config, indent=1).replace("$", "\\u0024"), encoding="utf-8")


def _facts(config: Finetune, home: Home, ranks: Ranks) -> dict[str, object]:
    """Return the facts of this attempt for the manifest."""
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
