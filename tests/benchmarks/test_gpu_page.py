"""The page from the results of `python -m benchmarks.gpu`."""

from typing import Any

from benchmarks.gpu.page import page
from benchmarks.gpu.results import newest

Line = dict[str, Any]
MEASURED = {"gemm": 1.2, "attention": 0.12, "elementwise": 0.9, "optimizer": 0.05, "other": 0.01,
            "idle": 0.02}  # fmt: skip
RATE = {"micro_batch": 128, "steps_per_s": 2.0, "images_per_s": 512.0, "mfu": 0.37, "gpu_gb": 40.0,
        "predicted_gb": 41.0, "host_bound": None, "data_share": 0.01, "power_w": 690.0,
        "sm_mhz": 1410.0}  # fmt: skip
RESUMED = {"standstill_s": 3.0, "steps_repeated": 5, "losses": "equal", "exit_status": 0}


def line(part: str, name: str, figure: str = "", *, time: float = 1.0, **found: Any) -> Line:
    found = {"state": "measured"} | found if "result" in found else found
    fixed = {"device": "NVIDIA H100 80GB HBM3", "commit": "abc", "time": time, "wall_s": 1.0}
    about = {"part": part, "name": name, "figure": figure, "command": f"python -m {part}.{name}"}
    return about | fixed | found


def results() -> list[Line]:
    """Lines of every part, as a GPU would leave them."""
    layers = [f"{layer} {kind}" for layer in ("qkv", "out", "up", "down")
              for kind in ("forward", "dgrad", "wgrad")]  # fmt: skip
    gemms = [line("gemm", "block", one, result={"ms": 1.0, "tflop_per_s": 620.0}) for one in layers]
    kernels = {"FLASH_ATTENTION": 240.0, "CUDNN_ATTENTION": 250.0}
    order = {"torch": "2.11", "attention": "FLASH_ATTENTION"}
    eager = RATE | {"images_per_s": 340.0, "mfu": 0.24}
    return [
        line("machine", "ceilings", "copy", result={"gb_per_s": 2900.0}),
        line("machine", "ceilings", "matmul bf16", result={"tflop_per_s": 780.0}),
        line("machine", "facts", "facts", result=order),
        *(line("attention", "backends", name, result={"ms": 1.0, "tflop_per_s": rate})
          for name, rate in kernels.items()),
        *gemms,
        line("trainer", "xl-compiled", "xl-compiled", result=RATE),
        line("trainer", "xl-compiled", state="done"),
        line("trainer", "xl-eager", "xl-eager", result=eager),
        line("profile", "xl-compiled", "xl-compiled", result={"ms": MEASURED}),
        line("resume", "synchronous", "synchronous", result=RESUMED),
        line("peer", "diffusers", state="failed", reason="ModuleNotFoundError: diffusers"),
        line("trainer", "xl-auto", state="skipped", reason="needs scipy"),
        line("tests", "train", "tests/train/test_gpu.py::test_a", result={"seconds": 3.0}),
    ]  # fmt: skip


def section(text: str, title: str) -> str:
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_shows_what_was_measured_beside_what_was_expected() -> None:
    text = page(results(), name="gpu-h100")
    trainer = section(text, "The trainer")
    assert "| xl-compiled | 128 | 2 | 512 | 0.37 | 40 | 41 | 0.01 | 690 | 1,410 " in trainer
    # 1 / (1.11 + 0.12 + 0.48 + 0.05 ms).
    assert "| below 568 | 0.37 to 0.40 |" in trainer
    # 0.686 TFLOP at 620 TFLOP/s.
    assert "| gemm | 1.11 | 1.106 | 1.2 |" in section(text, "Where a step goes")
    missing = section(text, "Failed or skipped")
    assert "| peer/diffusers |  | failed | ModuleNotFoundError: diffusers |" in missing
    assert "| trainer/xl-auto |  | skipped | needs scipy |" in missing
    assert section(text, "Against diffusers").endswith("Nothing.\n")


def test_the_newest_figure_counts_and_a_skip_replaces_none() -> None:
    first, second = (line("peer", "x", "a", time=t, result={"median": t}) for t in (1.0, 2.0))
    skipped = line("peer", "x", "a", time=3.0, state="skipped", reason="needs scipy")
    failed = line("peer", "x", "a", time=4.0, state="failed", reason="crash")
    assert newest([first, second, skipped]) == [second]
    assert newest([first, second, skipped, failed]) == [failed]
    assert newest([failed, first]) == [first]
    assert newest([skipped]) == [skipped]
