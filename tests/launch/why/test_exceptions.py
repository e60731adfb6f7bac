"""`launch why` quotes an exception once, with its file and line."""

import json

from runs.folder import ROOT, RunFolder
from tests.launch.why.conftest import CUDA_OOM, Launch, Why, fail, record, write_log


def test_an_exception_is_a_crash(run: RunFolder, why: Why) -> None:
    fail(run, rank=1, reason="crash", message="KeyError: 'weights'")
    found = why()
    assert (found["cause"], found["first_failure"]) == ("crash", "rank 1 on node-0")
    assert found["evidence"] == ["attempts/001/error.json: rank 1: KeyError: 'weights'"]


SYNTAX_ERROR = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/me/logs/.code/1a2b/train/__main__.py", line 9, in <module>
[rank0]:     import train.loop
[rank0]:   File "/home/me/logs/.code/1a2b/train/loop.py", line 1
[rank0]:     def f(:
[rank0]:           ^
[rank0]: SyntaxError: invalid syntax
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/distributed/run.py", line 901, in main
    run(args)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
train FAILED
srun: error: a40-1: task 0: Exited with exit code 1"""


def test_an_error_before_training_is_found_in_the_output(run: RunFolder, launch: Launch) -> None:
    record(run, "failed", reason="crash", message="the ranks left with status 1 and no message")
    write_log(run, "output.log", SYNTAX_ERROR)
    out = launch("why", run.path)[1]
    lines = [line.strip() for line in out.splitlines()]
    assert lines[2:4] == ["evidence:", "train/loop.py:1: SyntaxError: invalid syntax"]
    assert "ChildFailedError" not in out
    assert "error.json" not in out
    assert f"{run.attempt(1)}/output.log" in lines[-1]


def test_an_exception_in_training_shows_its_type_file_and_line(run: RunFolder, why: Why) -> None:
    message = "'Course' object has no attribute 'config'"
    fail(run, rank=0, reason="crash", message=message)
    note = run.attempt(1) / "error.json"
    frames = f'  File "{ROOT}/train/a.py", line 7, in f\n  File "/v/site-packages/t.py", line 8\n'
    noted = {"traceback": f"Traceback\n{frames}    y\nAttributeError: {message}\n"}
    note.write_text(json.dumps(json.loads(note.read_text()) | noted))
    write_log(run, "output.log", f"AttributeError: {message}")
    assert why()["evidence"] == [f"train/a.py:7: AttributeError: {message}"]


def test_a_sentence_stands_once_in_the_evidence(run: RunFolder, why: Why) -> None:
    fail(run, rank=2, reason="oom", message=CUDA_OOM.partition(": ")[2])
    for name in ("ranks/rank-00002.log", "output.log"):
        write_log(run, name, f"[rank2]: {CUDA_OOM}")
    (line,) = why()["evidence"]
    assert line.startswith("attempts/001/error.json: rank 2: CUDA out of memory")
