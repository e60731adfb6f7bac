"""Text logs in which a record spans several lines, and bars that are drawn again and again."""

import re

from analysis.read.text.patterns import Format

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
