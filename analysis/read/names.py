"""What others call the things that we measure."""

COLUMNS = {
    "loss": (
        "loss", "train_loss", "train/loss", "loss/train", "training_loss", "training/loss",
        "loss_metrics/global_avg_loss", "train_loss_step", "train/loss_step", "avr_loss",
        "loss/average", "loss/current", "step_loss", "train_loss_epoch", "train/loss_epoch",
        "loss/loss", "lm loss", "lm-loss",
    ),
    "lr": ("lr", "learning_rate", "train/lr", "train/learning_rate", "learning-rate", "lr/unet"),
    "grad_norm": ("grad_norm", "train/grad_norm", "grad-norm"),
    "images": ("images", "samples_count", "consumed_samples", "samples_seen", "images_seen"),
    "time": ("time", "wall_time", "timestamp", "_timestamp", "walltime"),
    "train_s": ("train_s",),
    "elapsed_s": ("elapsed", "elapsed_s", "elapsed_time", "relative_time", "_runtime", "runtime"),
    "step_s": ("step_time", "train_step_time", "time_metrics/end_to_end(s)", "sec_per_step"),
    "steps_per_s": ("steps_per_sec", "train_steps_per_sec", "steps_per_second", "it/s"),
    "tokens_per_s": ("throughput(tps)", "wps", "tps", "tokens_per_second", "tokens_per_sec"),
    "images_per_s": ("images_per_sec", "images_per_second", "samples_per_second", "throughput"),
}  # fmt: skip
STEP = ("step", "global_step", "trainer/global_step", "_step", "iteration", "iter", "steps")

_BY_NAME = {name: column for column, names in COLUMNS.items() for name in names}


def column_of(name: str) -> str:
    """The column that a foreign name stands for: one of ours, or the name itself."""
    return _BY_NAME.get(name.strip().lower(), name)


def preference(name: str) -> int:
    """Which of several names for one column is taken: the lowest."""
    spelled = name.strip().lower()
    column = _BY_NAME.get(spelled)
    return COLUMNS[column].index(spelled) if column else 0
