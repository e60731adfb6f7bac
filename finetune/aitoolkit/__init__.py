"""Fine-tuning by ai-toolkit, unmodified: a process of its own, steered and followed from here."""

import json
import tempfile
import time
from pathlib import Path

from configs.aitoolkit import check_one_rank, check_wishes
from configs.aitoolkit_home import Home, find_home
from configs.prompts import filled, prompts_of
from configs.run import RunFolder
from configs.schema import Finetune
from finetune.aitoolkit.dataset import lay_out_dataset
from finetune.aitoolkit.drive import Drive, Stop
from finetune.aitoolkit.files import Checkpoint, Collector, lay_out, newest_checkpoint
from finetune.aitoolkit.home import versions
from finetune.aitoolkit.losses import LossLog
from finetune.aitoolkit.phases import Timeline
from finetune.aitoolkit.process import Process
from finetune.aitoolkit.steps import Steps
from finetune.aitoolkit.table import JobTable
from finetune.aitoolkit.translation import JOB, Desk, their_config
from train.attempt import carry_out
from train.dist import Ranks
from train.facts import place
from train.journal import Journal, log
from train.stopping import ENDS, Watch, Wish


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at fine-tuning by ai-toolkit; 0 whenever the run folder is in order."""
    return carry_out(run, Finetune, _run, number=number)


def _run(run: RunFolder, config: Finetune, ranks: Ranks, attempt: int) -> None:
    began = time.time()
    check_one_rank(ranks.world)
    check_wishes(config)
    home = find_home()
    watch = Watch(run, attempt=attempt)
    checkpoint = newest_checkpoint(run.checkpoints)
    journal = Journal(run, attempt=attempt, rank=0, tensorboard=config.log.tensorboard)
    run.note(attempt, engine="aitoolkit", **_facts(config, home, ranks))
    start = checkpoint.step if checkpoint else 0
    journal.event("started", step=start, images=start * config.train.global_batch)
    # Beside the run: sqlite locks badly on shared file systems, and of files whose path holds
    # certain letters (_cn, _t2i, _LoRA) ai-toolkit takes none up.
    with tempfile.TemporaryDirectory(prefix="ditbench-") as desk:
        drive = _start(run, config, home, checkpoint, Path(desk), watch, journal, attempt, began)
        try:
            wish = drive.until_it_leaves()
        finally:
            drive.process.kill()
    if wish is Wish.LEAVE:
        log.warning("a newer attempt has begun: leaving without a save")
    else:
        saved = drive.stop.saved
        at = {"step": saved, "images": saved * config.train.global_batch}
        journal.event(ENDS[wish], **at, **drive.timeline.now().fields())
        drive.collector.tidy()
    journal.close()


def _start(
    run: RunFolder,
    config: Finetune,
    home: Home,
    checkpoint: Checkpoint | None,
    desk: Path,
    watch: Watch,
    journal: Journal,
    attempt: int,
    began: float,
) -> Drive:
    """ai-toolkit started, from the checkpoint where there is one."""
    kept = run.attempt(attempt) / "aitoolkit"
    kept.mkdir()
    root = kept / JOB
    if checkpoint is not None:
        lay_out(checkpoint, root)
    dataset = run.path / "cache" / "aitoolkit"
    lay_out_dataset(config, dataset)
    (desk / "output").symlink_to(kept)
    (desk / "dataset").symlink_to(dataset)
    table = JobTable(desk / "job.db")
    start = checkpoint.step if checkpoint else 0
    prompts = prompts_of(config.sample.prompts, config.sample.prompts_file)
    theirs = their_config(
        config,
        Desk(output=desk / "output", database=table.path, dataset=desk / "dataset"),
        prompts=[filled(prompt, config.data.trigger) for prompt in prompts],
        start=start,
        attempt=attempt,
    )
    # As JSON: YAML 1.1, which it reads, takes 1e-4 for text. An escaped dollar is not looked up
    # in the environment.
    asked = kept / "config.json"
    asked.write_text(json.dumps(theirs, indent=1).replace("$", "\\u0024"), encoding="utf-8")
    log.info("starting ai-toolkit; its own words: %s", kept / "output.log")
    return Drive(
        run=run,
        config=config,
        start=start,
        root=root,
        table=table,
        process=Process(home, asked, output=kept / "output.log"),
        timeline=Timeline(began=began, before=checkpoint.seconds if checkpoint else {}),
        losses=LossLog(root / "loss_log.db"),
        steps=Steps(
            every=config.log.every,
            last=config.train.steps,
            images_per_step=config.train.global_batch,
        ),
        collector=Collector(root, run, keep=config.checkpoint.keep),
        journal=journal,
        watch=watch,
        stop=Stop(saved=start),
    )


def _facts(config: Finetune, home: Home, ranks: Ranks) -> dict[str, object]:
    batch = config.train.micro_batch or config.train.global_batch
    return {
        "placement": [place(ranks)],
        "versions": versions(home),
        "ranks": 1,
        "replicate": 1,
        "shard": 1,
        "tensor": 1,
        "micro_batch": batch,
        "accumulation": config.train.global_batch // batch,
    }
