"""Print the lines of a training whose loss depends on its flags, and write checkpoints."""

import argparse
import os
import sys
import time
from pathlib import Path

flags = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word and word[0] != "-")
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument(
    "--lr", type=float, default=float(flags.get("optim.lr", os.environ.get("LR", 0.1)))
)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--ckpt")
parser.add_argument("--out", default="out")
parser.add_argument("--pause", type=float, default=0.0)
options, rest = parser.parse_known_args()
print("arguments:", sys.argv[1:], flush=True)
print("a remark on stderr", file=sys.stderr, flush=True)
first = int(Path(options.ckpt).stem.split("-")[1]) if options.ckpt else 0
for step in range(first + 1, options.steps + 1):
    print(f"step {step} loss {1 / (1 + options.lr * step):.4f}", flush=True)
    if step % 10 == 0 and options.pause:
        Path(options.out).mkdir(exist_ok=True)
        Path(options.out, f"ckpt-{step}.pt").write_text("weights\n")
    time.sleep(options.pause)
