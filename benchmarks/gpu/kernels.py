"""Figures of the GPU alone: its ceilings, attention, and the matrix products of a block.

    python -m benchmarks.gpu.kernels ceilings|facts|attention|gemm cuda|cpu

Prints one JSON object per figure, with power and clocks. The shapes are those of a DiT-XL/2 on 256
tokens with a micro batch of 128: 32,768 tokens of width 1152 in 16 heads of 72. On a CPU they are
small. A figure is taken after two seconds of the same work, at the power that training sustains;
`burst` is the rate of the first calls.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.power import PowerWatch

ON_GPU = "cuda" in sys.argv
# A CPU may only emulate bf16.
DEVICE, DTYPE = ("cuda", torch.bfloat16) if ON_GPU else ("cpu", torch.float32)
BATCH, TOKENS, WIDTH, HEADS = (128, 256, 1152, 16) if ON_GPU else (1, 64, 96, 2)
# A repeat of which five are taken; on a GPU after as many that only heat it.
SPAN_S = 0.4 if ON_GPU else 0.002
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")


def put(name: str, **values: object) -> None:
    """Print one figure."""
    print(json.dumps({"name": name} | values), flush=True)


def median_s(step: Callable[[], object], *, calls: int) -> float:
    """Return the median seconds of a call with the device's work, of five repeats of `calls`."""

    def sample() -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            step()
        if ON_GPU:
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / calls

    return statistics.median(sample() for _ in range(5))


def timed(step: Callable[[], object]) -> tuple[float, float, dict[str, float]]:
    """Return seconds per call, under load and at first, with the device's work; and its power."""
    median_s(step, calls=1)  # also fills the caches
    first = median_s(step, calls=2)
    calls = math.ceil(SPAN_S / first)
    median_s(step, calls=calls)
    with PowerWatch() as watch:
        sustained = median_s(step, calls=calls)
    return sustained, first, watch.row


def put_rate(name: str, step: Callable[[], object], *, tflop: float, **values: object) -> None:
    """Print the ms and TFLOP/s of a call of so many TFLOP."""
    taken, first, power = timed(step)
    rates = {"ms": 1e3 * taken, "tflop_per_s": tflop / taken, "burst": tflop / first}
    put(name, **values, **rates, **power)


def measure_ceilings() -> None:
    """Print GB/s of a copy (read + written), and TFLOP/s of square products."""
    to, source = torch.ones(2, 1 << (29 if ON_GPU else 18), device=DEVICE)
    gb = 2 * source.nbytes / 1e9
    taken, first, power = timed(lambda: to.copy_(source))
    put("copy", gb_per_s=gb / taken, burst=gb / first, **power)
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
    side = 8192 if ON_GPU else 256
    for name, dtype in types.items() if ON_GPU else {"fp32": torch.float32}.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, b = torch.randn(2, side, side, device=DEVICE).to(dtype)
        put_rate(f"matmul {name}", partial(torch.matmul, a, b), tflop=2 * side**3 / 1e12)


def measure_facts() -> None:
    """Print what a run's manifest says about the machine, with clocks under load."""
    # Imported here: a machine without pydantic has its ceilings measured.
    from train.engine.distributed import read_ranks
    from train.engine.environment import rank_placement, versions

    a = torch.randn(8192 if ON_GPU else 64, 8192 if ON_GPU else 64, device=DEVICE, dtype=DTYPE)
    for _ in range(400 * ON_GPU):  # a second of work, under which the clocks are read
        a @ a
    facts = rank_placement(read_ranks()) | versions()
    # Torch's list of preferences, which it completes within the first call, does not say it.
    shape = (1, HEADS, TOKENS, WIDTH // HEADS)
    query = torch.empty(shape, dtype=DTYPE, device=DEVICE, requires_grad=True)
    facts["attention"] = SDPBackend(torch._fused_sdp_choice(query, query, query)).name
    put("facts", **{name: fact for name, fact in facts.items() if name not in ("node", "host")})


def measure_attention() -> None:
    """Print forward + backward of each backend: seven products of 2 B H T^2 D FLOP."""
    shape = (BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
    qkv = torch.randn(shape, device=DEVICE, dtype=DTYPE, requires_grad=True)
    gradient = torch.randn_like(qkv[:, :, 0].transpose(1, 2))

    def step() -> None:
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        F.scaled_dot_product_attention(query, key, value).backward(gradient)
        qkv.grad = None

    for name in BACKENDS:
        try:
            with sdpa_kernel(getattr(SDPBackend, name)):
                put_rate(name, step, tflop=7 * 2 * BATCH * TOKENS**2 * WIDTH / 1e12)
        except RuntimeError as error:
            why = str(error).partition("\n")[0]  # "No available kernel", or a real failure
            put(name, **{"skipped" if why.startswith("No ") else "failed": why})


def measure_gemms() -> None:
    """Print forward, dgrad and wgrad of y [M, N] = x [M, K] W^T for each linear layer."""
    m = BATCH * TOKENS
    for layer, n, k in (("qkv", 3, 1), ("out", 1, 1), ("up", 4, 1), ("down", 1, 4)):
        n, k = n * WIDTH, k * WIDTH
        shapes = ((m, k), (n, k), (m, n))
        x, w, y = (torch.randn(shape, device=DEVICE, dtype=DTYPE) for shape in shapes)
        for name, a, b in (("forward", x, w.t()), ("dgrad", y, w), ("wgrad", y.t(), x)):
            product = partial(torch.matmul, a, b)
            put_rate(f"{layer} {name}", product, tflop=2 * m * n * k / 1e12, n=n, k=k)


if __name__ == "__main__":
    parts = {"ceilings": measure_ceilings, "facts": measure_facts,
             "attention": measure_attention, "gemm": measure_gemms}  # fmt: skip
    parts[sys.argv[1]]()
