"""`python -m benchmarks.gpu`: every part runs, none takes another with it, and the page says so."""

import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.read.run_folder import read_ours
from benchmarks.gpu.__main__ import main, measured
from benchmarks.gpu.page import PARTS, budgets, newest, page
from benchmarks.gpu.trainer import BASE, columns, predicted, work
from configs.load import expect, load
from configs.schema import Pretrain
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

Line = dict[str, Any]
PLANS = [Path("benchmarks/gpu") / name for name in ("plan.toml", "tiny.toml")]
# Rates that gpu.md's budget assumes for an H100, and the work of an image of DiT-XL/2.
WORK = {"peak_tflop_per_s": 989.0, "peak_gb_per_s": 3350.0, "gemm_tflop": 0.686,
        "attention_tflop": 0.0296, "elementwise_gb": 1.39, "optimizer_gb": 0.137}  # fmt: skip
MEASURED = {"gemm": 1.2, "attention": 0.12, "elementwise": 0.9, "optimizer": 0.05, "other": 0.01,
            "idle": 0.02}  # fmt: skip
RATE = {"micro_batch": 128, "steps_per_s": 2.0, "images_per_s": 512.0, "mfu": 0.37, "gpu_gb": 40.0,
        "predicted_gb": 41.0, "predicted_images_per_s": 640.0, "host_bound": None,
        "data_share": 0.01}  # fmt: skip
RESUMED = {"standstill_s": 3.0, "steps_repeated": 5, "losses": "equal", "exit_status": 0}


def line(part: str, name: str, *, time: float = 1.0, **found: Any) -> Line:
    state = {"state": "measured"} if "result" in found else {}
    fixed = {"device": "NVIDIA H100 80GB HBM3", "commit": "abc", "time": time, "wall_s": 1.0}
    return (
        {"part": part, "name": name, "command": f"python -m {part}.{name}"} | state | fixed | found
    )


def results() -> list[Line]:
    """A line for every part, as a GPU would leave them."""
    layers = [f"{layer} {kind}" for layer in ("qkv", "out", "up", "down")
              for kind in ("forward", "dgrad", "wgrad")]  # fmt: skip
    gemms = [line("gemm", one, result={"ms": 1.0, "tflop_per_s": 620.0}) for one in layers]
    kernels = {"FLASH_ATTENTION": 240.0, "CUDNN_ATTENTION": 250.0}
    order = {"torch": "2.11", "attention_order": "FLASH_ATTENTION,CUDNN_ATTENTION"}
    return [
        line("machine", "copy", result={"gb_per_s": 2900.0}),
        line("machine", "matmul bf16", result={"tflop_per_s": 780.0}),
        line("machine", "facts", result=order),
        *(line("attention", name, result={"ms": 1.0, "tflop_per_s": rate})
          for name, rate in kernels.items()),
        *gemms,
        line("trainer", "xl-compiled-128", result=RATE),
        line("trainer", "xl-eager-128", result=RATE | {"images_per_s": 340.0, "mfu": 0.24}),
        line("trainer", "xl-compiled-auto", state="skipped", reason="no time was left"),
        line("profile", "xl-compiled-128", result={"ms": MEASURED} | WORK),
        line("resume", "synchronous", result=RESUMED),
        line("peer", "diffusers", state="failed", reason="ModuleNotFoundError: diffusers"),
        line("tests", "tests/train/test_gpu.py::test_a", result={"passed": ""}),
    ]  # fmt: skip


def changed(part: str, name: str, **values: Any) -> list[Line]:
    """The lines with some values of one result changed."""
    lines = results()
    (one,) = [each for each in lines if (each["part"], each["name"]) == (part, name)]
    one["result"] = one["result"] | values
    return lines


def section(text: str, title: str) -> str:
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.long
def test_every_part_is_measured_on_a_cpu_at_tiny_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LOGS": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
                        "OMP_WAIT_POLICY": "passive"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    out = tmp_path / "tiny"
    assert main(["--tiny", "--out", str(out)]) == 0
    lines = [json.loads(text) for text in (out / "results.jsonl").read_text().splitlines()]
    found = {part: [each for each in lines if each["part"] == part] for part in PARTS}
    assert all(each["state"] == "measured" for part in PARTS[2:7] for each in found[part])
    assert len(found["gemm"]) == 12
    assert found["trainer"][0]["result"]["steps_per_s"] > 0
    assert all(found["profile"][0]["result"]["ms"][name] > 0 for name in ("gemm", "elementwise"))
    resumed = found["resume"][0]["result"]
    assert resumed["losses"] == "equal"
    assert resumed["steps_repeated"] >= 3
    assert found["peer"][0]["result"]["ratios"][0]["median"] > 0
    assert [(each["state"], each["reason"]) for each in found["tests"]] == [
        ("skipped", "needs a CUDA GPU")
    ]
    text = (out / "README.md").read_text()
    assert "Nothing." not in section(text, "Where a step goes") + section(text, "The trainer")
    assert "needs a CUDA GPU" in section(text, "Failed or skipped")


def test_a_measurement_that_fails_or_hangs_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "good.py").write_text('print(\'{"name": "a", "ms": 1}\')')
    (tmp_path / "bad.py").write_text("import good; raise ValueError('no such kernel')")
    (tmp_path / "stuck.py").write_text(
        "import good, subprocess, sys\nsys.stdout.flush()\nsubprocess.run(['sleep', '1000'])"
    )
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[shares]\ngemm = 0.5\npeer = 0.5\n[needs]\n"lacks" = "no_such_package"\n[words]\n'
        '[gemm]\nbad = "bad"\nstuck = "stuck"\nlate = "good"\n'
        '[peer]\nlacks = "lacks"\ngood = "good"\n'
    )
    lines = list(measured(plan, PARTS, 6.0, tmp_path))
    assert [(one["part"], one["name"], one["state"]) for one in lines] == [
        ("gemm", "a", "measured"),
        ("gemm", "bad", "failed"),
        ("gemm", "a", "measured"),
        ("gemm", "stuck", "timed out"),
        ("gemm", "late", "skipped"),
        ("peer", "lacks", "skipped"),
        ("peer", "a", "measured"),
    ]
    reasons = [one["reason"] for one in lines if "reason" in one]
    assert reasons[0] == "ValueError: no such kernel"
    assert reasons[1].startswith("killed after ")
    assert reasons[2:] == ["no time was left", "needs no_such_package"]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_every_measurement_of_a_plan_can_be_made(plan: Path) -> None:
    tree = tomllib.loads(plan.read_text())
    assert tuple(tree["shares"]) == PARTS
    assert sum(tree["shares"].values()) == pytest.approx(1)
    for part in PARTS:
        for words in tree[part].values():
            while "{" in words:
                words = words.format_map(tree["words"])
            module, *rest = shlex.split(words)
            if module == "benchmarks.gpu.trainer":
                load(BASE, rest[1:])
            elif module == "pytest":
                assert Path(rest[-1]).exists()


def test_the_page_shows_what_was_measured_beside_what_was_predicted() -> None:
    text = page(results(), name="gpu-h100")
    assert "| xl-compiled-128 | 128 | 2 | 512 | 0.37 | 40 | 41 | 640 | 0.01 |" in text
    # 0.686 TFLOP at 0.7 of 989 and at 620 TFLOP/s, beside 1.2 ms.
    assert "| gemm | 0.9909 | 1.106 | 1.2 |" in section(text, "Where a step goes")
    missing = section(text, "Failed or skipped")
    assert "| peer | diffusers | failed | ModuleNotFoundError: diffusers |" in missing
    assert "| trainer | xl-compiled-auto | skipped | no time was left |" in missing
    assert section(text, "Against diffusers, and float8").endswith("Nothing.\n")


def test_the_last_result_of_a_command_counts_and_a_skip_replaces_none() -> None:
    first, second = (line("peer", "x", time=t, result={"median": t}) for t in (1.0, 2.0))
    skipped = line("peer", "x", time=3.0, state="skipped", reason="no time was left")
    failed = line("peer", "x", time=4.0, state="failed", reason="crash")
    assert newest([first, second, skipped]) == [second]
    assert newest([first, second, skipped, failed]) == [failed]
    assert newest([skipped]) == [skipped]


def small(**images_per_s: float) -> list[Line]:
    """The results, with a DiT-S at a batch of 32 trained in two ways."""
    rates = {how: RATE | {"images_per_s": rate} for how, rate in images_per_s.items()}
    return results() + [line("trainer", f"s-{how}-32", result=rate) for how, rate in rates.items()]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (results, "begin with elementwise, which is over its budget by 0.42 of 2.30 ms"),
        (lambda: changed("resume", "synchronous", losses="DIFFERENT"), "mend the resume"),
        (lambda: changed("trainer", "xl-eager-128", images_per_s=500.0), "graph breaks"),
        (lambda: changed("trainer", "xl-eager-128", data_share=0.2), "raise `data.workers`"),
        (lambda: changed("trainer", "xl-eager-128", gpu_gb=60.0), "but 41.0 GB were predicted"),
        (lambda: changed("trainer", "xl-eager-128", host_bound=0.5), "waits for its host"),
        (lambda: small(compiled=1000.0, graphs=1500.0), "set `train.compile=graphs`"),
        (lambda: changed("attention", "CUDNN_ATTENTION", tflop_per_s=300.0), "CUDNN_ATTENTION is"),
        (lambda: changed("gemm", "out wgrad", tflop_per_s=300.0), "square one: out wgrad."),
    ],
)  # fmt: skip
def test_a_rule_says_what_to_do(lines: Callable[[], list[Line]], said: str) -> None:
    advised = section(page(lines(), name="x"), "What to do next")
    assert said in advised
    assert advised.count("\n* ") == (1 if lines is results else 2)


def test_a_gpu_within_its_budget_gets_no_advice() -> None:
    lines = changed("trainer", "xl-compiled-128", mfu=0.45)
    assert section(page(lines, name="x"), "What to do next").strip() == "Nothing."


def test_a_budget_needs_every_product() -> None:
    figures: dict[str, Line] = {part: {} for part in PARTS}
    figures["profile"]["x"] = {"ms": MEASURED} | WORK
    assert list(budgets(figures)) == ["data sheet", "measured"]
    assert budgets(figures)["measured"]["sum"] == pytest.approx(sum(MEASURED.values()))


@pytest.mark.parametrize(
    ("kernel", "column"),
    [
        ("nvjet_tst_192x208_64x4_2x1_v_bz_coopB_NNT", "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "gemm"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>", "gemm"),
        ("triton_tem_fused_addmm_3", "gemm"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", "attention"),
        ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<T>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80", "attention"),
        ("triton_red_fused_native_layer_norm_mul_3", "elementwise"),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor>", "elementwise"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimizer"),
        ("Memcpy HtoD (Pinned -> Device)", "other"),
    ],
)  # fmt: skip
def test_a_kernel_belongs_to_a_column_of_the_budget(kernel: str, column: str) -> None:
    event = {"name": kernel, "cat": "kernel", "pid": 0, "tid": 7, "ph": "X"}
    host = {"name": "aten::mm", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 0.0, "dur": 9e6}
    events = [host, event | {"ts": 0.0, "dur": 2000.0}, event | {"ts": 3000.0, "dur": 1000.0}]
    found = columns(events, images=2)
    assert {name: ms for name, ms in found.items() if ms} == {column: 1.5, "idle": 0.5}


def test_a_run_has_its_own_forecast(tmp_path: Path) -> None:
    log = read_ours(RunFolder(generate_run(tmp_path / "run", SyntheticRun(intervals=20))))
    config = expect(load(BASE, ["train.compile=true"]), Pretrain, source=BASE)
    facts = dict(log.facts) | {"micro_batch": 8, "parameters": 33_000_000}
    object.__setattr__(log, "facts", facts)
    small = predicted(log, config)
    assert small["predicted_images_per_s"]
    facts["micro_batch"] = 32
    large = predicted(log, config)
    assert large["predicted_gb"] > small["predicted_gb"]
    found = work(log, config)
    assert (found["peak_tflop_per_s"], found["peak_gb_per_s"]) == (149.7, 696)
    assert found["gemm_tflop"] > found["attention_tflop"] > 0
