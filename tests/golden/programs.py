"""How programs of `kind: command` end, executed, and what the output of ai-toolkit is taken for."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs.load import merge, resolve, to_tree
from configs.yaml12 import dump_yaml
from finetune.aitoolkit.process import failure
from runs.__main__ import main as runs
from runs.folder import RunFolder
from tests.corpus.log_texts import CUDA_OOM, TRACEBACK
from tests.golden.surroundings import one_line, printed

RAISES = f"cat <<'END'\n{TRACEBACK}ImportError: no x\nEND\nexit 1"
# The script, further keys of the config, and the files in the attempt's folder.
PROGRAMS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "ends well": ("echo step 1 loss 2.0", {}, ()),
    "saves and ends well": ("echo x >$1/model", {}, ()),
    "exits with 1": ("exit 1", {}, ()),
    "saves and raises": (f"echo x >$1/model\n{RAISES}", {}, ()),
    "runs out of GPU memory": (f"echo '{CUDA_OOM}'; exit 1", {}, ()),
    "finds the disk full": ("echo 'cp: a: No space left on device'; exit 1", {}, ()),
    "is killed": ("kill -9 $$", {}, ()),
    "is killed after a save": ("echo x >$1/model; sleep .1; kill -9 $$", {}, ()),
    "is terminated": ("kill -TERM $$", {}, ()),
    "has a segmentation fault": ("ulimit -c 0; kill -SEGV $$", {}, ()),
    "asks to be requeued": ("exit 75", {"requeue_code": 75}, ()),
    "cannot be started": ("", {"run": "/nonexistent/program"}, ()),
    "is stopped": ("sleep 30 & wait", {}, ("STOP",)),
    "is stopped and ends well": ("trap 'exit 0' TERM; sleep 2 & wait", {}, ("STOP",)),
    "is near the limit": ("trap 'exit 3' USR1; sleep 2 & wait", {"signal": "USR1"}, ("PAUSE",)),
    "cannot be warned": ("sleep 1.5", {}, ("PAUSE",)),
    "overruns the limit": (
        "trap 'touch $1/../attempts/001/STOP' USR1; while :; do sleep .1; done",
        {"signal": "USR1"}, ("PAUSE",),
    ),
}  # fmt: skip
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
    """Return how each program ended; needs `surroundings`."""
    lines = [line for name in PROGRAMS for line in _executed(name, folder)]
    for status, info, output in AITOOLKIT:
        found = failure(status, info=info, output=output)
        shown = f"status {status}, info {info!r}, output {output.strip().splitlines()[-1:]}"
        lines += [f"ai-toolkit: {shown}:", f"  {found.reason}: {found}"]
    return "".join(f"{line}\n" for line in lines)


def _executed(name: str, folder: Path) -> Iterator[str]:
    script, keys, files = PROGRAMS[name]
    file = folder / f"{name.replace(' ', '-')}.sh"
    file.write_text(script + "\n")
    tree = {"kind": "command", "run": f"bash {file} {{output}}", "folder": str(folder)} | keys
    run = RunFolder(folder / "logs" / name.replace(" ", "-"))
    run.attempt(1).mkdir(parents=True)
    run.config_file.write_text(dump_yaml(to_tree(resolve(merge({}, tree), source=name))))
    for word in files:
        (run.attempt(1) / word).touch()
    handled = (signal.SIGUSR1, signal.SIGTERM, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in handled}
    try:
        status, _, _ = printed(runs, "run", str(run.attempt(1)))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    code, out, _ = printed(runs, "close", str(run.attempt(1)), "--status", str(status))
    yield f"a program that {name}: runs run: exit {status}; runs close: {out.strip()}, exit {code}"
    for record in run.records():
        kept = {key: value for key, value in record.items() if key not in ("time", "attempt")}
        yield f"  {one_line(kept)}"
