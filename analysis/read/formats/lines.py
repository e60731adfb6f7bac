"""Text logs: one pattern for each trainer, and the order in which the formats are trusted.

A new format is one entry here: see `analysis.read.text.patterns` for the named groups.
"""

import re

from analysis.read.formats.mlperf import MLPERF
from analysis.read.text.patterns import Format

# A number as printed, and a pair in which a space may stand for the colon. Of a word of letters no
# part is tried as a name, and no shorter name or blank, so that the time is linear in a long line.
_N = rb"[-+.\w]+(?:,\d\d\d[.\d]*)*%?"
_LOOSE_PAIR = re.compile(
    rb"(?<![A-Za-z_])((?:(?:train|val|valid|validation|eval|test)[ _])?[A-Za-z_][\w./@]{0,99}+)"
    rb"[\"']?(?:[ \t]*+[:=][ \t]*+|[ \t]++)[\"']?([-+]?(?:\.?\d[-+.\w]*|nan|NaN|inf))"
)


def _pattern(text: bytes) -> re.Pattern[bytes]:
    """Compile a pattern: N is a printed number, a space any number of blanks, `~` at least one."""
    text = re.sub(rb"(?<![\w?<])N(?!\w)", lambda _: _N, text)
    return re.compile(text.replace(b" ", rb"[ \t]*").replace(b"~", rb"[ \t]+"))


DIT = Format(
    name="DiT",
    tokens=(b"(step=",),
    pattern=_pattern(
        rb"\(step=(?P<step>\d{1,18})\) Train Loss(?:~\w+)?: (?P<loss>N)"
        rb"(?:, Train Loss ce: (?P<loss_ce>N))?(?:, Train Steps/Sec: (?P<steps_per_s>N))?"
    ),
)
TITAN = Format(
    name="torchtitan",
    tokens=(b"step:",),
    pattern=_pattern(
        rb"\bstep: (?P<step>\d{1,18})~~loss: (?P<loss>N)(?:~grad_norm: (?P<grad_norm>N))?"
        rb"(?:~memory: (?P<gpu_gib>[.\d]+)GiB\([.\d]+%\))?"
        rb"(?:~[wt]ps: (?P<tokens_per_s>N))?(?:~tflops: (?P<tflops>N))?"
        rb"(?:~mfu: (?P<mfu_percent>N/A|N))?"
        rb"(?:~it/s: (?P<steps_per_s>N))?(?:~im/s: (?P<images_per_s>N))?"
    ),
)
MEGATRON = Format(
    name="Megatron",
    tokens=(b"iteration",),
    pattern=_pattern(rb"\biteration (?P<step>\d{1,18})/ \d+ \|(?P<pairs>[^\n]{1,2000})"),
    pair=re.compile(rb"\| *([A-Za-z][^:|\n]{0,60}): *([-+.\w]+)"),
    rename={"elapsed time per iteration (ms)": "step_ms"},
)
NANO_GPT = Format(
    name="nanoGPT",
    tokens=(b"loss ",),
    pattern=_pattern(
        rb"\b(?:iter|step) (?P<step>\d{1,18}): (?:loss (?P<loss>N), time (?P<step_ms>[.\d]+)ms"
        rb"(?:, mfu (?P<mfu_percent>[-.\d]+)%)?|train loss [-.\d]+, val loss (?P<val_loss>N))"
    ),
)
SPEEDRUN = Format(
    name="speedrun",
    tokens=(b"train_time:",),
    pattern=_pattern(
        rb"\bstep:(?P<step>\d{1,18})/(?P<of>\d+) (?:train_loss:(?P<loss>N) )?"
        rb"(?:val_loss:(?P<val_loss>N) )?train_time:"
        rb"(?:(?P<train_ms>[.\d]+)ms|(?P<train_s>[.\d]+)s\b)"
    ),
)
LLM_C = Format(
    name="llm.c",
    tokens=(b" trl:", b" tel:"),
    pattern=_pattern(rb"(?m)^s:(?P<step>\d{1,18}) (?:trl:(?P<loss>N)|tel:(?P<val_loss>N))"),
)
LLM_C_CONSOLE = Format(
    name="llm.c console",
    tokens=(b"| loss ",),
    pattern=_pattern(
        rb"\bstep (?P<step>\d{1,18})/(?P<of>\d+) \| loss (?P<loss>N)[^\n|]{0,40}"
        rb"(?:\| norm (?P<grad_norm>N)[^\n|]{0,40})?(?:\| lr (?P<lr>N) )?"
        rb"(?:\| (?P<step_ms>[.\d]+) ms)?"
    ),
)
MAXTEXT = Format(
    name="MaxText",
    tokens=(b"completed step: ",),
    pattern=re.compile(rb"completed step: (?P<step>\d{1,18}), (?P<pairs>[^\n]{1,2000})"),
    rename={"seconds": "step_s"},
)
DETECTRON2 = Format(
    name="detectron2",
    tokens=(b"total_loss: ",),
    pattern=re.compile(
        rb"\biter: (?P<step>\d{1,18})  (?P<pairs>[^\n]{0,200}total_loss: [^\n]{1,4000})"
    ),
    rename={"time": "step_s"},
)
BASIC_SR = Format(
    name="BasicSR",
    tokens=(b", iter:",),
    pattern=_pattern(
        rb"\[epoch: \d{1,9}, iter: (?P<step>[\d,]{1,18}), lr:\((?P<lr>[^,)\n]{1,20}),?\)\]"
        rb"(?P<pairs>[^\n]{1,2000})"
    ),
    rename={"l_pix": "loss", "l_g_total": "loss"},
)
MMENGINE = Format(
    name="mmengine",
    tokens=(b"Epoch", b"Iter"),
    pattern=_pattern(
        rb"(?:Epoch|Iter)(?:\(train\))? (?:\[ (?P<epoch>\d{1,9})\])?"
        rb"\[ (?P<step>\d{1,15})/ (?P<of>\d{1,15})\](?P<pairs>[^\n]{1,4000})"
    ),
    rename={"time": "step_s"},
    epochs_from=1,
)
METRIC_LOGGER = Format(
    name="MetricLogger",
    tokens=(b"Epoch: [",),
    pattern=_pattern(
        rb"Epoch: \[(?P<epoch>\d{1,9})\] \[ (?P<step>\d{1,15})/ (?P<of>\d{1,15})\]"
        rb"(?P<pairs>[^\n]{1,4000})"
    ),
    pair=_LOOSE_PAIR,
    rename={"time": "step_s", "Time": "step_s"},
    epochs_from=0,
)
TIMM = Format(
    name="timm",
    tokens=(b"Train: ",),
    pattern=_pattern(
        rb"Train: (?P<epoch>\d{1,9}) \[ (?P<step>\d{1,15})/ (?P<of>\d{1,15})~"
        rb"[^\n]{0,99}?Loss: (?P<loss>N)(?:[^\n]{0,99}?Time: (?P<step_s>[.\d]+)s,"
        rb" (?P<images_per_s>[.,\d]+)/s)?(?:[^\n]{0,99}?LR: (?P<lr>N))?"
    ),
    epochs_from=0,
)
STYLEGAN = Format(
    name="StyleGAN",
    tokens=(b"sec/kimg",),
    # Seconds per thousand images are milliseconds per image, which is the step here.
    pattern=re.compile(
        rb"\btick \d+ +kimg (?P<kimg>[.\d]+) +time (?P<elapsed_clock>[\d dhms]{1,30}?) +"
        rb"sec/tick [.\d]+ +sec/kimg (?P<step_ms>[.\d]+)"
    ),
)
DEEPSPEED = Format(
    name="DeepSpeed",
    tokens=(b"RunningAvgSamplesPerSec=",),
    pattern=_pattern(
        rb"(?:step=|\b\d+/)(?P<step>\d{1,18}), RunningAvgSamplesPerSec="
        rb"N(?:, CurrSamplesPerSec=(?P<images_per_s>[-+.\w]+))?"
    ),
)
# A damaged entry of MLPerf is none of these: its names stand for several axes.
KEY_VALUE = Format(
    name="key: value",
    tokens=(b"oss",),
    pattern=re.compile(
        rb"(?m)^(?=[^\n]{0,999}oss)(?![^\n]{0,400}:::MLL)(?=(?:[^\n]{0,400}?(?<![A-Za-z])"
        rb"(?:global_step|[Ss]teps?|STEP|[Ii]ter(?:ation)?|it|[Bb]atch)[\"']?[ \t:=#\[(]{1,4}"
        rb"(?P<step>\d{1,15})\b(?:/(?P<of>\d{1,15}))?)?)(?P<pairs>[^\n]{1,4000})"
    ),
    pair=_LOOSE_PAIR,
    head_chars=60,
)
STEP_LOSS = Format(
    name="step loss",
    tokens=(b".",),
    pattern=re.compile(rb"(?m)^(?P<step>\d{1,15})[ \t,;]+(?P<loss>[-+]?\d*\.\d[-+.\w]*)[ \t]*$"),
)
# With `[epoch=0][batch=1/10]:` batches are counted within an epoch.
COMPOSER = Format(
    name="Composer",
    tokens=(b"[batch=", b"loss/train/total:"),
    pattern=re.compile(
        rb"\[(?:epoch=(?P<epoch>\d{1,9})(?:/\d{1,9})?\]\[)?(?P<record>batch=)"
        rb"(?P<step>\d{1,15})/(?P<of>\d{1,15})\]:"
        rb"|loss/train/total:[ \t]*(?P<loss>[-+.\w]+)"
    ),
    epochs_from=0,
)
OLMO = Format(
    name="OLMo",
    tokens=(b"[step=", b"train/CrossEntropyLoss="),
    pattern=re.compile(
        rb"\[(?P<record>step=)(?P<step>\d{1,15})/(?P<of>\d{1,15})"
        rb"|train/CrossEntropyLoss=(?P<loss>[-+.\w]+)"
        rb"|throughput/total_tokens=(?P<tokens>[\d,]+)"
        rb"|optim/total_grad_norm=(?P<grad_norm>[-+.\w]+)"
    ),
)
GUIDED_DIFFUSION = Format(
    name="guided-diffusion",
    tokens=(b"-----", b"|\n"),
    pattern=re.compile(rb"(?m)^(?P<record>-{12,})$|^(?P<pairs>\|[^\n|]{1,200}\|[^\n|]{1,200}\|)$"),
    pair=re.compile(rb"\| *([^|\n]+?) *\| *([-+.\w]+) *\|"),
    heads=(),
)
KERAS = Format(
    name="Keras",
    tokens=(b"Epoch ", b"s - "),
    pattern=re.compile(
        rb"(?m)^(?P<record>Epoch )(?P<epoch>\d{1,9})/\d{1,9}$|"
        rb"^ *\d{1,9}/\d{1,9} [^\n]{0,99}? (?P<step_s>\d{1,6})s[^\n]{0,30}?"
        rb" - (?P<pairs>\w+: [^\n]{1,999})"
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
# ai-toolkit, kohya, diffusers, accelerate, Lightning. `group` is the length of the bar.
BARS = Format(
    name="tqdm",
    tokens=(b"<",),
    pattern=re.compile(
        rb"\|[ \t]*(?P<step>\d{1,15})/(?P<group>\d{1,15}) "
        rb"\[(?P<bar_clock>(?:\d{1,5} days?, )?\d{1,6}:\d\d(?::\d\d)?)<[^,\]\n]{0,30}"
        rb"(?:, *(?P<per_s>[.\d]+(?:s/it|it/s)))?"
        rb"(?P<pairs>[^\]\n]{0,400})\]"
    ),
    # Of `avr_loss`, `step_loss`, `train_loss` a bar shows one.
    pair=re.compile(rb"(l(?:oss|r))[=:][ \t]*([-+.\w]+)"),
    heads=("epoch",),
    is_redrawn=True,
)

# Formats of one trainer first; then bars, which also show downloads and sampling; then lines of
# any trainer.
FORMATS: tuple[Format, ...] = (
    MLPERF, TITAN, DIT, MEGATRON, NANO_GPT, SPEEDRUN, LLM_C,
    LLM_C_CONSOLE, MAXTEXT, DETECTRON2, BASIC_SR, MMENGINE,
    TIMM,
    METRIC_LOGGER, STYLEGAN, COMPOSER, OLMO, GUIDED_DIFFUSION,
    TRAINER, BARS, KERAS, DEEPSPEED, KEY_VALUE, STEP_LOSS,
)  # fmt: skip
