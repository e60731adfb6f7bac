"""One vocabulary for all logs: which column a printed name and its unit stand for.

A name is compared by its words: `train/loss`, `Train Loss` and `train_loss` are the same.
"""

import re
from functools import lru_cache

# The columns that are measured, each with the names that trainers use, preferred ones first.
ALIASES = {
    "step": (
        "step", "_step", "total timesteps", "time total timesteps", "num timesteps", "timesteps",
        "timestep", "num steps", "iteration", "iter", "steps", "batches", "iterations", "iters",
        "it", "update", "updates", "num updates", "step num", "iter num", "batch num", "step id",
        "batch id", "batch idx", "batch i", "frame", "frames", "episode", "episodes",
        "num episodes", "game",
    ),
    "epoch": ("epoch", "epochs", "epoch num", "ep"),
    "loss": ("loss", "l pix"),
    "lr": ("lr", "learning rate", "base lr"),
    "grad_norm": ("grad norm", "gnorm", "norm", "optim total grad norm"),
    "images": ("images", "samples count", "samples", "samples seen", "images seen", "cur nimg"),
    "tokens": ("tokens", "tokens seen", "total tokens", "num tokens", "throughput total tokens"),
    "global_batch": ("global batch", "global batch size", "total batch size"),
    "batch": ("batch size",),
    "batch_number": ("batch",),
    "time": ("timestamp", "_timestamp", "date", "datetime"),
    "duration_s": ("time", "wall time", "walltime", "ts"),
    "train_s": ("train s",),
    "elapsed_s": (
        "elapsed", "elapsed time", "relative time", "relative time (process)",
        "_runtime", "runtime", "time elapsed", "total time", "time since start", "time total",
        "seconds elapsed",
    ),
    "images_per_s": ("imgs sec",),
    "tokens_per_s": ("throughput(tps)", "wps", "tps", "tokens per s device"),
    "mfu_percent": ("mfu", "mfu percent"),
}  # fmt: skip
_KEYS = {name: (column, 10 * rank) for column, names in ALIASES.items()
         for rank, name in enumerate(names)}  # fmt: skip
# A step of a name with one of these words is not one of the training.
_OTHER_STEPS = ("frame", "episode", "game", "timestep")
# Words that say whose or which value it is, and not what is measured; of a loss also some more.
_NEUTRAL = frozenset(
    ["train", "training", "trainer", "learn", "global", "current", "completed", "consumed",
     "metrics", "optimizer"]
)  # fmt: skip
_MEANS = frozenset(
    ["avg", "average", "mean", "avr", "running", "epoch", "ema", "smooth", "smoothed", "moving",
     "cumulative"]
)  # fmt: skip
_OF_LOSS = _NEUTRAL | _MEANS | {
    "reduced", "total", "step", "batch", "tr", "lm"
}  # fmt: skip
# Words of other languages; in UTF-8 each is as long as its translation, or longer.
ENGLISH = {
    "训练": "train", "验证": "valid", "测试": "test", "损失值": "loss", "损失": "loss",
    "轮次": "epoch", "轮数": "epoch", "周期": "epoch", "步骤": "step", "步数": "step",
    "迭代": "iter", "批次": "batch", "学习率": "lr", "准确率": "acc", "平均": "mean",
    "耗时": "time", "用时": "time", "秒": "s", "最佳": "best", "最优": "best",
    "\uff1a": ":", "\uff0c": ",", "\uff08": "(", "\uff09": ")", "\u3002": ".", "\uff1b": ";",
    "エポック": "epoch", "損失": "loss", "検証": "valid", "学習": "train",
    "에포크": "epoch", "손실": "loss", "검증": "valid", "훈련": "train", "학습": "train",
    "Эпоха": "epoch", "эпоха": "epoch", "потери": "loss", "Потери": "loss",
    "itération": "iteration", "étape": "step", "époque": "epoch", "Époque": "epoch",
    "Época": "epoch", "época": "epoch", "Pérdida": "loss", "pérdida": "loss",
}  # fmt: skip
_IN_ASCII = {"verlust": "loss", "perte": "loss", "schritt": "step", "epoche": "epoch",
             "zeit": "time"}  # fmt: skip
_SPLIT = re.compile(r"(?<!^)[\s_\-./:+]+")
# `step/s` is a rate; `step_s` is a time.
_SLASH_S = re.compile(r"/(?=(?:s|secs?|seconds?)\b)")
# `ValLoss` has two words; `MSE` and `mIoU` have one.
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z]{2})")
_STEP = r"(?:step|iter|iteration|batch|update)"
_STEPS = r"(?:steps|its|iters|iterations|batches|updates)"
_ANY_STEP = rf"(?:{_STEP}|{_STEPS}|it)"
_IMAGE = r"(?:image|img|im|sample|example|ex|seq|sequence|sentence)"
_IMAGES = r"(?:images|imgs|samples|examples|seqs|sequences|sentences)"
_PER_S = r"(?:s|secs?|seconds?)$"
# Of one device: as tokens are counted, and no other rate.
_OF_DEVICE = r"(?:s|secs?|seconds?)(?: per (?:device|gpu|rank))?$"
_RATES = [
    (column, re.compile(pattern)) for column, pattern in (
        ("steps_per_s",
         rf"(?:^|[ (])(?:{_STEPS} (?:per )?|(?:{_STEP}|it) per ){_PER_S}|^ups$"),
        ("images_per_s", rf"(?:^|[ (])(?:{_IMAGES} (?:per )?|{_IMAGE} per ){_PER_S}"),
        ("tokens_per_s",
         rf"(?:^|[ (])(?:(?:tokens|toks|words) (?:per )?|(?:token|tok) per ){_OF_DEVICE}"),
        ("step_s",
         rf"(?:^|[ (])(?:s|secs?|seconds?|ms|msecs?) (?:per |in )?{_ANY_STEP}\b"
         rf"|(?:^|[ (])(?:time|timing) (?:per |in )?(?:{_STEP}|it)\b"
         rf"|(?:^| ){_ANY_STEP} (?:time|timing|cost|duration|ms)\b(?! total)"
         rf"|(?:^| ){_STEP} (?:s|secs?|seconds)\b(?! total)|end to end\(s\)$"),
        ("epoch_s", r"(?:^| )epoch (?:time|duration|s|secs?|seconds)\b|(?:^| )s epoch$"),
    )
]  # fmt: skip
_DURATIONS = {"": 1.0, "s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0,
              "ms": 1e-3, "msec": 1e-3, "msecs": 1e-3, "us": 1e-6, "ns": 1e-9, "m": 60.0,
              "min": 60.0, "mins": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0,
              "hours": 3600.0}  # fmt: skip
_MULTIPLES = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}
# A unit at the end of a name: `step_time_ms`, `elapsed (ms)`.
_ENDS_IN_UNIT = re.compile(
    r"^(.*?) ?[ (\[](s|secs?|seconds|ms|msecs?|us|ns|mins?|minutes|hours)[)\]]?$"
)
_TELLS_UNIT = re.compile(
    r"(?<![a-z])(?:ms|msecs?|us|ns|s|secs?|seconds?|mins|minutes|hours)(?![a-z])"
)
# Of wandb, whose times are in seconds.
_IN_SECONDS = frozenset(["_runtime", "relative time", "relative time (process)"])
EVALUATION = frozenset(
    ["val", "valid", "validation", "dev", "eval", "evaluation", "test", "testing", "validate",
     "evaluate", "evaluating", "validating", "heldout"]
)  # fmt: skip
# What only an evaluation finds: a name with one of these needs no other word.
_OF_EVALUATION = EVALUATION | {"fid", "kid"}
# Columns whose text says whether a row is of the training or of an evaluation.
_PHASES = frozenset(
    ["split", "mode", "phase", "stage", "set", "subset", "partition", "type", "kind", "event"]
)
# With one of these a name with a loss is of a setting.
_NO_LOSS = frozenset(
    ["weight", "weights", "scale", "type", "fn", "function", "coef", "coeff", "coefficient",
     "lambda", "ratio", "factor", "freq", "frequency", "best", "lowest", "minimum", "worst",
     "highest", "maximum", "trend"]
)  # fmt: skip
# `trainloss`, `LossPi`, `Loss1`.
_LOSS = re.compile(r".*loss|loss(?:[a-z]{1,2}|\d{1,2})")
_CRITERIA = frozenset(["mse", "nll", "ce", "bce", "elbo", "xent", "bpd"])
_TIMES = re.compile(r"(?:^| )(?:time|took|duration|seconds|secs?|cost)$|^(?:dt|t|time taken)$")
_NO_CLOCK = re.compile(r"(?:^| )(?:data|eta|remain\w*|left|load\w*|forward|backward|reader)\b")


@lru_cache(maxsize=4096)
def key_of(name: str) -> str:
    """Return the words of a name in lower case, between single blanks."""
    if not name.isascii():
        for word, english in ENGLISH.items():
            name = name.replace(word, f" {english} ")
    words = _SLASH_S.sub(" per ", _CAMEL.sub(" ", name.strip().strip("\"'/")).lower())
    words = _SPLIT.sub(" ", words).replace("losses", "loss")
    return " ".join(_IN_ASCII.get(word, word) for word in words.split())


@lru_cache(maxsize=4096)
def _known(key: str) -> tuple[str, int]:
    """Return the column of a name's words, "" if there is none, and its rank; low ones go first."""
    if key in _KEYS:
        return _KEYS[key]
    words = key.split()
    if set(words) - _OF_LOSS == {"loss"}:
        return "loss", len(words)
    kept = [word for word in words if word not in _NEUTRAL]
    column, rank = _KEYS.get(" ".join(kept), ("", 0))
    # A time of training is no time of day.
    if column in ("time", "duration_s", "elapsed_s"):
        return "", 0
    # A global step goes on through epochs in which another is counted.
    return column, -1 if key == "global step" else rank + len(words) - len(kept)


@lru_cache(maxsize=4096)
def meaning(name: str, unit: str = "") -> tuple[str, float]:
    """Return the column of a number, "" if its name has none, and the factor to the column's unit.

    A time that does not say what it lasted is `duration_s`: `analysis.read.clock` finds out by
    its values. A rate needs a unit.
    """
    key, unit = key_of(name), unit.strip().lower()
    named = None if unit else _ENDS_IN_UNIT.match(key)
    if named:
        unit = named[2]
    elif not unit and re.search(r"\(ms\)|^ms ", key):
        unit = "ms"
    seconds, multiple = _DURATIONS.get(unit, 1.0), _MULTIPLES.get(unit, 1.0)
    share = 0.01 if unit == "%" and is_loss(name) else 1.0
    if is_evaluation(name):
        return "", seconds * share
    for column, rate in _RATES:
        if rate.search(key) or ("/" in unit and rate.search(f"{key} {key_of(unit)}")):
            is_time = column in ("step_s", "epoch_s")
            ms = 1e-3 if unit.startswith("ms") else seconds
            return column, ms if is_time else multiple
    for known in (key, named[1] if named else ""):
        if (column := _known(known)[0]) in ("duration_s", "elapsed_s"):
            return column, seconds
    column = _known(key)[0]
    if key.endswith("kimg"):
        return "images", 1e3
    if column:
        return column, multiple * share
    is_time = bool(_TIMES.search(key)) or (not key and unit in _DURATIONS and unit != "")
    if is_time and not _NO_CLOCK.search(key):
        return "duration_s", seconds
    counted = _known(unit.strip("- "))[0]
    return (counted, 1.0) if counted in ("step", "epoch") else ("", share)


def counted_by(name: str) -> str:
    """Return what a name of the column `step` counts: steps of the training, unless it says so."""
    words = {word.removesuffix("s") for word in key_of(name).split()}
    return next((other for other in _OTHER_STEPS if other in words), "step")


def tells_unit(name: str, unit: str = "") -> bool:
    """Whether the unit of a time stands in its name or after its value."""
    key = key_of(name)
    first = unit.partition("/")[0].strip().lower()
    is_unit = bool(first) and first in _DURATIONS
    return is_unit or key in _IN_SECONDS or bool(_TELLS_UNIT.search(key))


def unit_factor(name: str) -> float:
    """Return the factor to seconds of a name that is known to be a time's: `dur_ms`, `dur_min`."""
    words = key_of(name).split()
    return _DURATIONS.get(words[-1], 1.0) if len(words) > 1 else 1.0


def preference(name: str) -> int:
    """Return the rank of a name among those of its column; the lowest is taken."""
    return _known(key_of(name))[1]


def names_evaluation(name: str, text: str) -> bool:
    """Whether a text in a column says that its row is of an evaluation: `split` is `val`."""
    return key_of(name) in _PHASES and is_evaluation(text[:40])


def takes_phase(name: str) -> bool:
    """Whether a value of an evaluation's row is a result of it, and no place or time."""
    column = meaning(name)[0]
    return column == "loss" or (column not in ALIASES and not column.endswith("_s"))


def is_evaluation(name: str) -> bool:
    """Whether a name is qualified as an evaluation's, in any case: `Val Loss`, `dev/acc`, `FID`."""
    return not _OF_EVALUATION.isdisjoint(key_of(name).split())


def is_mean(name: str) -> bool:
    """Whether a loss is named as a mean over steps."""
    return not _MEANS.isdisjoint(key_of(name).split())


def names_no_quantity(name: str) -> bool:
    """Whether a name is empty or only says that a number is of training."""
    return set(key_of(name).split()) <= _NEUTRAL


def is_loss(name: str) -> bool:
    """Whether a name that `ALIASES` does not know is one of a training loss."""
    words = key_of(name).split()
    if not _NO_LOSS.isdisjoint(words):
        return False
    is_entropy = "cross entropy" in " ".join(words)
    return is_entropy or any(map(_LOSS.fullmatch, words)) or not _CRITERIA.isdisjoint(words)
