"""A fake of ai-toolkit's run.py: it writes the table, the log and the files, and does not train.

It behaves like the real one, which tests/finetune/aitoolkit/test_real_aitoolkit.py runs: the first
step is not logged, scheduled saves come one step before it is counted, and TERM ends it unsaved.
"""

import json
import os
import sqlite3
import struct
import sys
import time
import zipfile
from pathlib import Path

PROCESS = json.loads(Path(sys.argv[1]).read_text())["config"]["process"][0]
NAME = json.loads(Path(sys.argv[1]).read_text())["config"]["name"]
TRAIN, SAVE, SAMPLE = PROCESS["train"], PROCESS["save"], PROCESS["sample"]
ROOT = Path(PROCESS["training_folder"]) / NAME
# As slow as a poll of the monitor: of saves that end between two polls only the last is kept.
STEP_S = float(os.environ.get("FAKE_STEP_S", "0.1"))
# Wan 2.2 saves a file for each of its two stages.
IS_WAN = PROCESS["model"].get("arch") == "wan22_14b"
STAGES = ("_high_noise", "_low_noise") if IS_WAN else ("",)
# Videos are animated.
FORMAT = "webp" if SAMPLE.get("num_frames", 1) > 1 else SAMPLE["format"]
FAILURE = os.environ.get("FAKE_FAILURE", "")


class LeaveRequested(Exception):
    pass


class Job:
    def __init__(self) -> None:
        self.database = sqlite3.connect(PROCESS["sqlite_db_path"], timeout=30, isolation_level=None)
        self.id = os.environ["AITK_JOB_ID"]

    def report(self, status: str, info: str) -> None:
        self.database.execute(
            "UPDATE Job SET status = ?, info = ? WHERE id = ?", (status, info, self.id)
        )

    def step(self, step: int) -> None:
        self.database.execute("UPDATE Job SET step = ? WHERE id = ?", (str(step), self.id))

    def maybe_leave(self) -> None:
        row = self.database.execute("SELECT return_to_queue FROM Job WHERE id = ?", (self.id,))
        if row.fetchone()[0] == 1:
            self.report("queued", "Job queued")
            raise LeaveRequested

    def is_save_requested(self) -> bool:
        row = self.database.execute("SELECT save_now FROM Job WHERE id = ?", (self.id,))
        is_requested = bool(row.fetchone()[0] == 1)
        if is_requested:
            self.database.execute("UPDATE Job SET save_now = ? WHERE id = ?", ("0", self.id))
        return is_requested


def loss_log() -> sqlite3.Connection:
    log = sqlite3.connect(ROOT / "loss_log.db", timeout=30, isolation_level=None)
    log.executescript(
        "PRAGMA journal_mode=WAL;"
        "CREATE TABLE IF NOT EXISTS steps (step INTEGER PRIMARY KEY, wall_time REAL NOT NULL);"
        "CREATE TABLE IF NOT EXISTS metric_keys "
        "(key TEXT PRIMARY KEY, first_seen_step INTEGER, last_seen_step INTEGER);"
        "CREATE TABLE IF NOT EXISTS metrics (step INTEGER NOT NULL, key TEXT NOT NULL, "
        "value_real REAL, value_text TEXT, PRIMARY KEY (step, key));"
    )
    return log


def log_step(log: sqlite3.Connection, step: int, *, is_skipped: bool) -> None:
    log.execute("BEGIN")
    log.execute("INSERT INTO steps VALUES (?, ?)", (step, time.time()))
    rate = 0.0 if is_skipped else TRAIN["lr"]
    log.execute("INSERT INTO metrics VALUES (?, 'learning_rate', ?, NULL)", (step, rate))
    if not is_skipped:
        log.execute("INSERT INTO metrics VALUES (?, 'loss/loss', ?, NULL)", (step, 1 / (1 + step)))
    if (held_out := evaluated.pop("held_out", None)) is not None:
        log.execute("INSERT INTO metrics VALUES (?, 'val/loss', ?, NULL)", (step, held_out))
    log.execute("COMMIT")


evaluated: dict[str, float] = {}


def validate(step: int, *, start: int) -> None:
    """Evaluate as the real one does: after the first step, whose value is logged by the next."""
    settings = TRAIN.get("validation_config")
    if settings and (step == start or step % settings["validate_every_n_steps"] == 0):
        evaluated["held_out"] = 100.0 + step


def save(job: Job, done: int, *, step: int | None) -> None:
    """Save a LoRA; `done` is the step in its metadata, `step` the one in its name."""
    job.maybe_leave()
    job.report("running", "Saving model")
    number = "" if step is None else f"_{step:09d}"
    header = json.dumps({
        "__metadata__": {"training_info": json.dumps({"step": done, "epoch": 0})},
        "transformer.x.lora_A.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    }).encode()  # fmt: skip
    content = struct.pack("<Q", len(header)) + header + struct.pack("<f", done)
    for stage in STAGES:
        (ROOT / f"{NAME}{number}{stage}.safetensors").write_bytes(content)
    with zipfile.ZipFile(ROOT / "optimizer.pt", "w") as file:
        file.writestr("step", str(done))
    job.maybe_leave()
    job.report("running", "Training")


def sample(job: Job, step: int) -> None:
    total = len(SAMPLE["samples"])
    (ROOT / "samples").mkdir(exist_ok=True)
    job.maybe_leave()
    job.report("running", f"Generating images - 0/{total}")
    for number in range(total):
        time.sleep(0.005)
        name = f"{int(time.time() * 1000)}__{step:09d}_{number}.{FORMAT}"
        (ROOT / "samples" / name).write_bytes(
            f"{SAMPLE['samples'][number]['prompt']} at {step}".encode()
        )
        job.maybe_leave()
        job.report("running", f"Generating images - {number + 1}/{total}")
    job.maybe_leave()
    job.report("running", "Training")


def begin(job: Job) -> int:
    """Go through the phases before training; return the step that it resumes from."""
    ROOT.mkdir(parents=True, exist_ok=True)
    for info in ("Starting", "Loading model", "Loading transformer", "Quantizing transformer"):
        job.maybe_leave()
        job.report("running", info)
        time.sleep(0.01)
    found = max(ROOT.glob(f"{NAME}*.safetensors"), key=os.path.getctime, default=None)
    step = 0
    if found is not None:
        print(f"#### IMPORTANT RESUMING FROM {found} ####")
        content = found.read_bytes()
        header = json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])
        step = json.loads(header["__metadata__"]["training_info"])["step"]
    step = TRAIN.get("start_step", step)
    job.report("running", "Loading dataset")
    time.sleep(0.01)
    job.step(step)
    job.report("running", "Training")
    if step <= 1:
        sample(job, step)
    return int(step)


def train(job: Job) -> None:
    start, log = begin(job), loss_log()
    for step in range(start, TRAIN["steps"]):
        time.sleep(STEP_S)
        if f"oom at {step}" == FAILURE:
            raise RuntimeError("OOM during training step 3 times in a row, aborting training")
        if f"hang at {step}" == FAILURE:
            time.sleep(60)
        validate(step, start=start)
        if step != start:
            if SAVE["save_every"] and step % SAVE["save_every"] == 0:
                save(job, step, step=step)
            if SAMPLE["sample_every"] and step % SAMPLE["sample_every"] == 0:
                sample(job, step)
            log_step(log, step, is_skipped=f"skip {step}" == FAILURE)
        job.step(step + 1)
        job.maybe_leave()
        if job.is_save_requested():
            save(job, step + 1, step=step + 1)
    save(job, TRAIN["steps"], step=None)
    sample(job, TRAIN["steps"])
    job.report("completed", "Training completed")


if __name__ == "__main__":
    print(json.dumps(dict(os.environ)))
    the_job = Job()
    try:
        train(the_job)
    except LeaveRequested:
        sys.exit("Error running job: Job returning to queue")
    except RuntimeError as error:
        the_job.report("error", str(error))
        raise
