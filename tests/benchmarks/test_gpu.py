"""`python -m benchmarks.gpu`: every piece runs, and none takes another with it."""

import shlex
import time
from pathlib import Path

import pytest

from benchmarks.gpu import wheels
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.page import PARTS
from benchmarks.gpu.pieces import Piece, read_plan, run_pieces
from benchmarks.gpu.results import passed_tests, read_results, unfinished
from benchmarks.gpu.trainer import BASE, columns
from configs.load import load

PLANS = [Path("benchmarks/gpu") / name for name in ("plan.toml", "tiny.toml")]


@pytest.mark.long
def test_every_piece_is_measured_on_a_cpu_at_tiny_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LOGS": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
                        "OMP_WAIT_POLICY": "passive"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    out = tmp_path / "tiny"
    assert main(["--tiny", "--out", str(out)]) == 0
    lines = read_results(out / "results.jsonl")
    pieces = read_plan(PLANS[1])
    assert unfinished(pieces, lines) == []
    found = {each["figure"]: each["result"] for each in lines if each["state"] == "measured"}
    assert sum(each["part"] == "gemm" for each in lines) == 12 + 1
    assert all(found["tiny"]["ms"][name] > 0 for name in ("gemm", "elementwise"))
    (rate,) = (
        each["result"] for each in lines if (each["part"], each["figure"]) == ("trainer", "tiny")
    )
    assert rate["images_per_s_low"] <= rate["images_per_s"] <= rate["images_per_s_high"]
    assert found["asynchronous"]["losses"] == "equal"
    assert found["asynchronous"]["steps_repeated"] >= 3
    assert found["diffusers"]["ratios"][0]["median"] > 0
    assert found["64 px, 1 images"]["step_s"] > 0
    reasons = {each["reason"] for each in lines if each["part"] == "tests" and each["figure"]}
    assert reasons == {"needs a CUDA GPU"}
    # Nothing is left; asked for again, one piece is measured alone.
    assert main(["--tiny", "--out", str(out)]) == 0
    assert read_results(out / "results.jsonl") == lines
    assert main(["--tiny", "--out", str(out), "--only", "gemm/block", "--again"]) == 0
    assert len(read_results(out / "results.jsonl")) == len(lines) + 13


def a_plan(folder: Path, *pieces: str, needs: str = "") -> list[Piece]:
    """Modules that measure, fail and hang, and a plan of them."""
    (folder / "good.py").write_text('print(\'{"name": "a", "ms": 1}\', flush=True)')
    (folder / "bad.py").write_text("import good; raise ValueError('no such kernel')")
    (folder / "stuck.py").write_text("import good, subprocess; subprocess.run(['sleep', '1000'])")
    (folder / "variables.py").write_text(
        "import json, os; print(json.dumps({k: os.environ[k] for k in os.environ}))"
    )
    plan = folder / "plan.toml"
    plan.write_text("[words]\n[needs]\n" + needs + "\n[pieces]\n" + "\n".join(pieces))
    return read_plan(plan)


def test_a_piece_that_fails_or_hangs_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plan = a_plan(
        tmp_path, '"gemm/bad" = [1, "bad"]', '"gemm/stuck" = [0.05, "stuck"]',
        '"gemm/late" = [60, "good"]', '"peer/lacks" = [1, "lacks"]', '"peer/good" = [1, "good"]',
        needs='"lacks" = "no_such_package"',
    )  # fmt: skip
    lines = list(run_pieces(plan, ends=time.time() + 120, logs=tmp_path, passed=[]))
    assert [(one["name"], one["figure"], one["state"]) for one in lines] == [
        ("bad", "a", "measured"),
        ("bad", "", "failed"),
        ("stuck", "a", "measured"),
        ("stuck", "", "timed out"),
        ("lacks", "", "skipped"),
        ("good", "a", "measured"),
        ("good", "", "done"),
    ]
    reasons = [one["reason"] for one in lines if "reason" in one]
    assert reasons == ["ValueError: no such kernel", "killed after 3 s", "needs no_such_package"]
    # What never began comes first in the next command, and what failed last.
    assert [piece.title for piece in unfinished(plan, lines)] == ["late", "lacks", "bad", "stuck"]


def test_a_piece_that_the_end_of_the_command_cuts_keeps_its_figures_and_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plan = a_plan(tmp_path, '"gemm/stuck" = [0.2, "stuck"]')
    began = time.time()
    lines = list(run_pieces(plan, ends=began + 12, logs=tmp_path, passed=[]))
    assert time.time() < began + 12
    assert [(one["figure"], one["state"]) for one in lines] == [("a", "measured")]
    assert unfinished(plan, lines) == plan


def test_tests_are_reported_one_by_one_and_run_until_they_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "test_one.py"
    file.write_text(
        "import pytest\n\npytestmark = pytest.mark.gpu\n"
        "def test_good(): pass\ndef test_bad(): assert 1 == 2\n"
        "def test_two(): pytest.skip('needs two GPUs')\n"
    )
    plan = a_plan(
        tmp_path, f'"tests/train" = [0, "benchmarks.gpu.tests --rootdir={tmp_path} {file}"]'
    )
    lines = list(run_pieces(plan, ends=time.time() + 200, logs=tmp_path, passed=[]))
    names = [one["figure"].rpartition("::")[2] for one in lines]
    assert names == ["test_good", "test_bad", "test_two", ""]
    assert [one["state"] for one in lines] == ["measured", "failed", "skipped", "done"]
    assert [one.get("reason") for one in lines][2] == "needs two GPUs"
    assert "assert 1 == 2" in lines[1]["tail"]
    again = list(
        run_pieces(plan, ends=time.time() + 200, logs=tmp_path, passed=passed_tests(lines))
    )
    assert [one["figure"].rpartition("::")[2] for one in again] == ["test_bad", "test_two", ""]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_every_piece_of_a_plan_can_be_run(plan: Path) -> None:
    for piece in read_plan(plan):
        assert piece.part in PARTS
        module, *rest = shlex.split(piece.words)
        if module == "benchmarks.gpu.trainer":
            load(BASE, rest[1:])
        elif module == "benchmarks.gpu.tests":
            assert Path(rest[-1]).exists()


def test_the_wheels_have_the_versions_of_the_environment() -> None:
    names = (*wheels.TRAINER, *wheels.BARE, *wheels.OPTIONAL)
    assert all("==" in one for one in wheels.pinned(names))
    assert len(wheels.pinned(names)) == len(names)


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
