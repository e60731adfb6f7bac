"""What the output of ai-toolkit is taken for when it ends."""

from pathlib import Path

from finetune.aitoolkit.process import failure
from tests.corpus.log_texts import CUDA_OOM, TRACEBACK

# The exit status, the last `info` of the table of jobs, and the output of ai-toolkit.
AITOOLKIT = (
    (-9, "", ""),
    (-9, "error", CUDA_OOM),
    (-15, "", ""),
    (1, "", ""),
    (1, "CUDA out of memory. Tried to allocate 2 GiB", ""),
    (1, "", f"{TRACEBACK}{CUDA_OOM}"),
    (1, "", f"{TRACEBACK}MemoryError: cannot allocate"),
    (1, "", f"{TRACEBACK}OSError: [Errno 28] No space left on device"),
    (1, "", f"{TRACEBACK}RuntimeError: CUDA error: unspecified launch failure"),
    (1, "", f"{TRACEBACK}PIL.UnidentifiedImageError: cannot identify image file 'a.png'"),
    (1, "loss is nan", "Error running job: loss is nan"),
    (1, "", f"{TRACEBACK}KeyError: 'weights'"),
    (0, "", ""),
)


def text(folder: Path) -> str:
    """Return what each end is taken for."""
    lines: list[str] = []
    for status, info, output in AITOOLKIT:
        found = failure(status, info=info, output=output)
        shown = f"status {status}, info {info!r}, output {output.strip().splitlines()[-1:]}"
        lines += [f"ai-toolkit: {shown}:", f"  {found.reason}: {found}"]
    return "".join(f"{line}\n" for line in lines)
