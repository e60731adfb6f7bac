"""Write logs as other trainers do: the same planted steps, times and losses in each format."""

import csv
import datetime
import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.find import read_logs
from analysis.read.options import parse_options, reading_with
from analysis.read.run_log import Ints, RunLog
from analysis.stats.intervals import Floats
from tests.analysis.synthetic_runs import ar1_noise

START = 1_700_000_000.0


@dataclass(frozen=True, kw_only=True)
class SyntheticLog:
    """At each logged step [n] the seconds since the start [n] and the loss [n]."""

    step: Ints
    seconds: Floats
    loss: Floats

    @property
    def rate(self) -> Floats:
        """Steps per second since the logged step before [n]."""
        spent = np.diff(self.seconds, prepend=0.0)
        return np.diff(self.step, prepend=0) / spent


def synthetic_log(
    *, steps_per_s: float = 0.5, n: int = 300, every: int = 50, cv: float = 0.01, seed: int = 0
) -> SyntheticLog:
    """Return a run at a known rate; the first interval holds a compile of a minute."""
    rng = np.random.default_rng(seed)
    step = np.arange(1, n + 1) * every
    spent = every / steps_per_s * np.exp(cv * ar1_noise(rng, n, rho=0.1))
    spent[0] += 60
    loss = (0.15 + 0.3 / np.sqrt(np.arange(1, n + 1))) * np.exp(0.01 * rng.standard_normal(n))
    return SyntheticLog(step=step, seconds=np.cumsum(spent), loss=np.round(loss, 4))


def _moment(seconds: float, *, digits: int = 0, comma: str = ",") -> str:
    moment = datetime.datetime.fromtimestamp(START + seconds, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (
        f"{comma}{moment.microsecond // 1000:03d}" if digits else ""
    )


def _clock(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"


def dit(log: SyntheticLog) -> bytes:
    lines = [
        f"[\x1b[34m{_moment(t)}\x1b[0m] (step={s:07d}) Train Loss: {x:.4f}, "
        f"Train Steps/Sec: {r:.2f}"
        for s, t, x, r in zip(log.step, log.seconds, log.loss, log.rate, strict=True)
    ]
    return ("[2023-11-14 22:13:20] Dataset contains 1,281,167 images\n" + "\n".join(lines)).encode()


def titan(log: SyntheticLog, *, prefix: str = "") -> bytes:
    lines = [
        f"{prefix}{_moment(t, digits=3)} - root - INFO - \x1b[31mstep: {s:2}  "
        f"\x1b[32mloss: {x:7.4f}  \x1b[33mmemory: 26.47GiB(33.47%)  "
        f"\x1b[34mwps: {r * 8192:,.0f}  \x1b[35mmfu: N/A\x1b[39m"
        for s, t, x, r in zip(log.step, log.seconds, log.loss, log.rate, strict=True)
    ]
    return "\n".join(lines).encode()


def titan_by_four_ranks(log: SyntheticLog) -> bytes:
    ranks = [titan(log, prefix=f"{r // 2}: [rank{r}]:").split(b"\n") for r in (2, 0, 3, 1)]
    return b"\n".join(line for lines in zip(*ranks, strict=True) for line in lines)


def ai_toolkit(log: SyntheticLog, *, end: str = "\r") -> bytes:
    bars = [
        f"my_lora:  12%|#2        | {s}/99999 [{_clock(t)}<07:41,  {r:.2f}it/s, "
        f"lr: 1.0e-04 loss: {x:.3e}]"
        for s, t, x, r in zip(log.step, log.seconds, log.loss, log.rate, strict=True)
    ]
    sampling = "Generating Images:  25%|##5       | 1/4 [00:03<00:09,  3.2s/it]\r"
    return (sampling + end.join(bars)).encode()


def kohya(log: SyntheticLog) -> bytes:
    bars = [
        f"steps: 22%|██▏       | {s}/99999 [{_clock(t)}<6:49:05, {1 / r:.2f}s/it, avr_loss={x:.4f}]"
        for s, t, x, r in zip(log.step, log.seconds, log.loss, log.rate, strict=True)
    ]
    bars[3] += "2024-08-16 10:58:26 INFO     unet dtype: torch.bfloat16"
    return "\r".join(bars).encode()


def trainer_console(log: SyntheticLog) -> bytes:
    rows = [
        {"loss": str(x), "grad_norm": float("nan"), "epoch": round(k / 70, 2)}
        for k, x in enumerate(log.loss)
    ]
    return "\n".join(map(str, rows)).encode()


def trainer_dicts(log: SyntheticLog) -> bytes:
    """Write dicts as a real training does: numbers of every width, a learning-rate schedule."""
    rng = np.random.default_rng(1)
    rows = [
        {"loss": float(x), "grad_norm": float(g), "learning_rate": 2e-5 * k / len(log.loss)}
        | {"epoch": round(k / 700, 2)}
        for k, (x, g) in enumerate(zip(log.loss, rng.lognormal(0, 1, len(log.loss)), strict=True))
    ]
    return "\n".join(map(str, rows)).encode()


def trainer_state(log: SyntheticLog) -> bytes:
    rows = [{"loss": x, "step": int(s)} for s, x in zip(log.step, log.loss, strict=True)]
    rows.append({"train_loss": 9.0, "train_runtime": 5.0, "step": int(log.step[-1])})
    return json.dumps({"best_metric": None, "log_history": rows}).encode()


def mlperf(log: SyntheticLog) -> bytes:
    entries = [
        {
            "namespace": "",
            "time_ms": int((START + t) * 1000),
            "event_type": "POINT_IN_TIME",
            "key": "tracked_stats",
            "value": {"train_loss": float(x)},
            "metadata": {"step": int(s), "samples_count": int(s) * 512},
        }
        for s, t, x in zip(log.step, log.seconds, log.loss, strict=True)
    ]
    entries = [{"key": "global_batch_size", "value": 512}, *entries]
    return "\n".join(f"0: :::MLLOG {json.dumps(entry)}" for entry in entries).encode("latin-1")


def mlperf_stats(log: SyntheticLog) -> bytes:
    """Write a log as a real submission does: a header, statistics with all digits, the end."""
    rows = zip(log.step.tolist(), log.seconds, log.loss, log.rate, strict=True)
    entries = [
        {"key": "global_batch_size", "value": 32},
        {"key": "run_start", "value": None, "time_ms": 5},
    ]
    entries += [
        {
            "time_ms": int((START + t) * 1000),
            "event_type": "POINT_IN_TIME",
            "key": "tracked_stats",
            "value": {"train_loss": float(x), "step_time": float(1 / rate)},
            "metadata": {"file": "train.py", "lineno": 7, "step": s, "samples_count": s * 32},
        }
        for s, t, x, rate in rows
    ]
    entries.append({"key": "run_stop", "metadata": {"status": "success"}, "time_ms": 9e12})
    return "\n".join(f"0: :::MLLOG {json.dumps(entry)}" for entry in entries).encode()


def lightning(log: SyntheticLog) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["epoch", "step", "train_loss", "val_loss"])
    for number, (s, x) in enumerate(zip(log.step, log.loss, strict=True)):
        if number == 100:
            writer.writerow(["epoch", "lr", "step", "train_loss", "val_loss"])
        writer.writerow([0, *([1e-4] if number >= 100 else []), s, x, ""])
        writer.writerow([0, *([""] if number >= 100 else []), s, "", 1.5])
    return out.getvalue().encode()


def table_with_time(log: SyntheticLog) -> bytes:
    rows = zip(log.step, log.loss, START + log.seconds, strict=True)
    return ("step,loss,wall_time\n" + "\n".join(f"{s},{x},{t:.3f}" for s, x, t in rows)).encode()


def nano_gpt(log: SyntheticLog) -> bytes:
    spent = 1000 / log.rate
    rows = zip(log.step, log.loss, spent, strict=True)
    return "\n".join(
        f"iter {s}: loss {x:.4f}, time {ms:.2f}ms, mfu 17%" for s, x, ms in rows
    ).encode()


def megatron(log: SyntheticLog) -> bytes:
    rows = zip(log.step, log.loss, 1000 / log.rate, strict=True)
    return "\n".join(
        f" iteration {s:8}/   99999 | consumed samples: {s * 32} | "
        f"elapsed time per iteration (ms): {ms:.1f} | "
        f"learning rate: 1.0E-04 | lm loss: {x:.6E} | grad norm: 1.3 |"
        for s, x, ms in rows
    ).encode()


def composer(log: SyntheticLog, *, epoch: int | None = None) -> bytes:
    lines = []
    for s, x in zip(log.step.tolist(), log.loss, strict=True):
        head = f"[batch={s}/99999]:"
        if epoch:
            head = f"[epoch={(s - 1) // epoch}][batch={(s - 1) % epoch + 1}/{epoch}]:"
        lines += [head, f"\t Train time/sample: {s * 32}", f"\t Train loss/train/total: {x:.4f}"]
    return "\n".join(lines).encode()


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _checksum(body: bytes) -> bytes:
    """Return TensorBoard's masked CRC-32C, computed bit by bit."""
    state = 0xFFFFFFFF
    for byte in body:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    state ^= 0xFFFFFFFF
    return struct.pack("<I", ((state >> 15 | state << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _record(body: bytes) -> bytes:
    head = struct.pack("<Q", len(body))
    return head + _checksum(head) + body + _checksum(body)


def tensorboard(log: SyntheticLog) -> bytes:
    version = b"brain.Event:2"
    out = _record(b"\x09" + struct.pack("<d", START) + b"\x1a" + _varint(len(version)) + version)
    for s, t, x in zip(log.step, log.seconds, log.loss, strict=True):
        value = b"\x0a\x0atrain/loss\x15" + struct.pack("<f", x)
        summary = b"\x0a" + _varint(len(value)) + value
        event = b"\x09" + struct.pack("<d", START + t) + b"\x10" + _varint(int(s))
        out += _record(event + b"\x2a" + _varint(len(summary)) + summary)
    return out


def _field(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _items(values: dict[str, object]) -> bytes:
    """Return protobuf's items of keys with values in JSON, as `wandb` writes them."""
    return b"".join(
        _field(1, _field(1 + (not name.startswith("_")), name.encode())
               + _field(16, json.dumps(value).encode()))
        for name, value in values.items()
    )  # fmt: skip


def framed(records: list[bytes]) -> bytes:
    """Return the frames of LevelDB's log, in blocks of 32 KiB, with wandb's header."""
    out = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        rest, is_first = record, True
        while rest or is_first:
            room = -len(out) % 32768
            if room < 7:
                out += bytes(room)
                room = 32768
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = (2 if rest else 1) if is_first else (3 if rest else 4)
            body = bytes([kind]) + part
            out += struct.pack("<IH", zlib.crc32(body), len(part)) + body
            is_first = False
    return bytes(out)


def wandb_records(
    rows: list[dict[str, object]],
    *,
    config: dict[str, object] | None = None,
    name: str = "eager",
    code: int = 0,
) -> list[bytes]:
    """Return the records of a run: its start, its machine with 8 GPUs, its rows, its end."""
    run = _field(1, b"abcd1234") + _field(4, _items(config or {})) + _field(8, name.encode())
    run += _field(13, b"gpu07") + _field(21, _field(2, b"0123456789abcdef"))
    machine = _field(18, b"NVIDIA A100") + _varint(19 << 3) + _varint(8)
    history = [_field(2, _items(row)) for row in rows]
    ended = _varint(8) + _varint(code) if code else b""
    return [_field(17, run), _field(26, machine), *history, _field(18, ended)]


def wandb(log: SyntheticLog) -> bytes:
    rows = [
        {"train/loss": x, "train/global_step": s, "_timestamp": START + t, "_step": n}
        for n, (s, t, x) in enumerate(zip(log.step.tolist(), log.seconds, log.loss, strict=True))
    ]
    return framed(wandb_records(rows))


# Each format with the clock that its rate is read on; None if it prints no time.
FORMATS: dict[str, tuple[Callable[[SyntheticLog], bytes], str | None]] = {
    "DiT": (dit, "wall"),
    "torchtitan": (titan, "wall"),
    "torchtitan, four ranks": (titan_by_four_ranks, "wall"),
    "ai-toolkit": (ai_toolkit, "bar"),
    "kohya": (kohya, "bar"),
    "HF console": (trainer_console, None),
    "HF console, full digits": (trainer_dicts, None),
    "HF state": (trainer_state, None),
    "MLPerf": (mlperf, "wall"),
    "MLPerf, full digits": (mlperf_stats, "wall"),
    "Lightning": (lightning, None),
    "csv": (table_with_time, "wall"),
    "nanoGPT": (nano_gpt, "printed"),
    "Megatron": (megatron, "printed"),
    "Composer": (composer, None),
    "TensorBoard": (tensorboard, "wall"),
    "wandb": (wandb, "wall"),
}


def log_of(values, *, name="log", axis="step", facts=None, steps=None):
    """Return a log of another trainer with one row per step."""
    count = len(next(iter(values.values())))
    step = np.arange(1, count + 1) if steps is None else steps
    return RunLog(
        name=name, path=Path(name), format="text", step=step, axis=axis, facts=facts or {},
        attempt=np.ones(count, dtype=np.int64), line=step,
        values={key: np.asarray(column, dtype=float) for key, column in values.items()},
    )  # fmt: skip


def logs_of(path: Path, text: str, *, pattern: str | None = None) -> list[RunLog]:
    """Return the logs in a text, with a pattern of the user's if one is given."""
    path.write_text(text)
    with reading_with(parse_options(pattern=pattern, columns=None, facts=[])):
        return read_logs([str(path)])
