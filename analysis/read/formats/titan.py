"""Lines of torchtitan and its forks: `step: 10  loss:  1.55  memory: 26GiB ... mfu: 10%`."""

import re

from analysis.read.text.batch import Field, Format

_LINE = re.compile(
    rb"\bstep:\s*(?P<step>\d{1,18})\s+loss:\s*(?P<loss>[-+.\w]+)"
    rb"(?:\s+grad_norm:\s*(?P<grad_norm>[-+.\w]+))?"
    rb"(?:\s+memory:\s*(?P<gpu_gib>[.\d]+)GiB\([.\d]+%\))?"
    rb"(?:\s+(?:wps|tps):\s*(?P<tokens_per_s>[.,\d]+))?"
    rb"(?:\s+tflops:\s*(?P<tflops>[.,\d]+))?"
    rb"(?:\s+mfu:\s*(?P<mfu_percent>[.\d]+%|N/A))?"
    rb"(?:\s+it/s:\s*(?P<steps_per_s>[.,\d]+))?"
    rb"(?:\s+im/s:\s*(?P<images_per_s>[.,\d]+))?"
)

TITAN = Format(
    name="torchtitan",
    token=b"loss:",
    pattern=_LINE,
    fields={name: Field(group=name) for name in _LINE.groupindex},
)
