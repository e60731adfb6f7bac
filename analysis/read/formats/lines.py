"""Text logs: the trainers whose lines need more than the names of their numbers.

A new format is one entry here: a `Dialect` says what a trainer means by names that the vocabulary
knows otherwise or not at all; a `Format` has a pattern of its own (`analysis.read.text.patterns`).
"""

import re

from analysis.read.formats.mlperf import MLPERF
from analysis.read.text.counts import Dialect
from analysis.read.text.patterns import Format

DIALECTS = tuple(
    Dialect(name=name, mark=re.compile(mark), names=names, axis=axis)
    for name, mark, names, axis in (
        ("DiT", r"\(step=\d+\) Train Loss", {}, "step"),
        ("torchtitan", r"\bstep: *\d+ +loss: ", {"memory": "gpu_gib"}, "step"),
        ("Megatron", r"\biteration +\d+/ *\d+ \|", {}, "step"),
        ("nanoGPT", r"\biter \d+: loss \S+ time|\bstep \d+: train loss \S+ val loss",
         {"time": "step_s"}, "step"),
        ("speedrun", r"\btrain_time:", {"train time": "train_s"}, "step"),
        ("llm.c", r"^s:\d+ t(?:r|e)l:", {"s": "step", "tel": "val_loss"}, "step"),
        ("llm.c console", r"\bstep +\d+/\d+ \| (?:train )?loss", {":ms": "step_s"}, "step"),
        ("MaxText", r"completed step: ", {"seconds": "step_s"}, "step"),
        ("detectron2", r"\biter: \d+ .*total_loss: ", {"time": "step_s"}, "step"),
        ("BasicSR", r"\[epoch: *\d+, iter:", {}, "step"),
        ("mmengine",
         r"Epoch(?:\(train\))? *\[\d+\]\[ *\d+/\d+\]|\bIter(?:\(train\))? *\[ *\d+/\d+\]",
         {"time": "step_s"}, "step"),
        ("MetricLogger", r"Epoch: *\[\d+\] *\[ *\d+/\d+\]", {"time": "step_s"}, "step"),
        ("timm", r"Train: \d+ \[ *\d+/\d+",
         {"train": "epoch", "time": "step_s", ":/s": "images_per_s"}, "step"),
        ("PyTorch examples", r"Train Epoch: \d+ \[ *\d+/\d+ \( *\d+%\)\]", {}, "sample"),
        ("OLMo", r"\[step=\d+/\d+,epoch=", {}, "step"),
        ("Composer", r"\[batch=\d+/\d+\]:", {}, "step"),
        ("guided-diffusion", r"^\| step +\|", {}, "step"),
        ("DeepSpeed", r"RunningAvgSamplesPerSec=",
         {"curr samples per sec": "images_per_s", "running avg samples per sec": "running"},
         "step"),
    )
)  # fmt: skip
STYLEGAN = Format(
    name="StyleGAN",
    tokens=(b"sec/kimg",),
    # Seconds per thousand images are milliseconds per image, which is the step here.
    pattern=re.compile(
        rb"\btick \d+ +kimg (?P<kimg>[.\d]+) +time (?P<elapsed_clock>[\d dhms]{1,30}?) +"
        rb"sec/tick [.\d]+ +sec/kimg (?P<step_ms>[.\d]+)"
    ),
)
STEP_LOSS = Format(
    name="step loss",
    tokens=(b".",),
    pattern=re.compile(
        rb"\n(?P<step>\d{1,15})[ \t,;]+(?P<loss>[-+]?\d*\.\d[-+.\w]*)[ \t]*(?![^\n])"
    ),
)
KERAS = Format(
    name="Keras",
    tokens=(b"s - ",),
    pattern=re.compile(
        rb"\n *(?P<within>\d{1,9})/(?P<group>\d{1,9}) [^\n]{0,99}? (?P<epoch_s>\d{1,6})s"
        rb"[^\n]{0,30}? - (?P<pairs>\w+: [^\n]{1,999})"
    ),
    heads=(),
)
# The console names no step: losses are counted, or take the step of the bar before them.
TRAINER = Format(
    name="HF Trainer",
    tokens=(b"{'",),
    pattern=re.compile(rb"\{(?P<pairs>'[^{}\n]{1,4000})\}"),
    pair=re.compile(rb"'([^'{}\\\n]+)': '?([-+.\w]+)'?"),
)
NOT_TRAINING = re.compile(
    rb"(?i:load|download|fetch|map|token|generat|valid|\bval\b|eval|\btest|sampl|infer|cach|encod|"
    rb"filter|process|sanity|saving|render|extract|convert|predict|shard|upload)"
)
# ai-toolkit, kohya, diffusers, accelerate, Lightning. `group` is the length of the bar.
BARS = Format(
    name="tqdm",
    tokens=(b"<",),
    pattern=re.compile(
        rb"\n(?:(?P<before>[^\n%]{0,200}+)%[ \t]*+(?:\|[^\n|]{0,300}+\|)?"
        rb"|[^\n|]{0,200}+\|[^\n|]{0,300}+\|)[ \t]*+"
        rb"(?P<step>\d{1,15})/(?P<group>\d{1,15}) "
        rb"\[(?P<bar_clock>(?:\d{1,5} days?, )?\d{1,6}:\d\d(?::\d\d)?)<[^,\]\n]{0,30}"
        rb"(?:, *(?P<per_s>[.\d]+(?:s/ ?\w+|\w+/s)))?(?P<pairs>[^\]\n]{0,400})\]"
    ),
    pair=re.compile(
        rb"((?:(?:[Tt]rain(?:ing)?|[Vv]al(?:id\w*)?|[Ee]val\w*|[Tt]est) )?[A-Za-z][\w./@-]*)"
        rb"[ \t]*[=:][ \t]*([-+]?\.?\d[-+.\w]*|nan|inf)"
    ),
    heads=("time",),
    unless=NOT_TRAINING,
    is_redrawn=True,
)

FORMATS: tuple[Format, ...] = (MLPERF, STYLEGAN, TRAINER, BARS, KERAS, STEP_LOSS)
