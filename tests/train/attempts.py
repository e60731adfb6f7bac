"""Attempts at several runs, one after another, by one set of ranks: torchrun ... PORT RUN ..."""

import os
import sys
from pathlib import Path

from configs.run import RunFolder
from train.pretrain import attempt

# In the store of torchrun's agent stand the addresses of the group before: each gets its own.
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
for port, path in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    os.environ["MASTER_PORT"] = port
    if attempt(RunFolder(Path(path)), number=1):
        sys.exit(f"{path} failed")
