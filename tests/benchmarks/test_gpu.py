"""`python -m benchmarks.gpu`: every piece runs, and none takes another with it."""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu import power, wheels
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.page import PARTS
from benchmarks.gpu.pieces import Piece, read_plan, run_pieces
from benchmarks.gpu.results import passed_tests, read_results, unfinished
from benchmarks.gpu.trainer import BASE, columns, predicted_gb, steady_rate
from configs.load import expect, load
from configs.schema import Pretrain
from train.model.build import network_macs
from train.model.flops import training_flops

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


def test_a_piece_has_the_environment_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plan = a_plan(tmp_path, '"gemm/variables" = [1, "variables"]')
    first, _ = run_pieces(plan, ends=time.time() + 60, logs=tmp_path / "logs", passed=[])
    found = first["result"]
    assert found["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    kernels = tmp_path / "cache" / "ditbench" / "kernels"
    assert found["TRITON_CACHE_DIR"] == str(kernels / "triton")
    assert kernels.stat().st_mode & 0o777 == 0o700


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
    monkeypatch.setenv("LOGS", str(tmp_path))
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


def test_the_most_telling_pieces_fit_the_first_command() -> None:
    plan = read_plan(PLANS[0])
    first = [piece.name for piece in plan[: [p.part for p in plan].index("tests")]]
    assert first == ["machine/facts", "machine/ceilings", "attention/backends", "gemm/block",
                     "trainer/xl-compiled", "trainer/xl-eager", "trainer/s-compiled",
                     "profile/xl-compiled"]  # fmt: skip


def test_kernels_are_measured_without_any_package_but_torch() -> None:
    code = (
        "import sys, benchmarks.gpu.__main__, benchmarks.gpu.kernels\n"
        "print(sorted({'pydantic', 'yaml', 'scipy', 'PIL'} & sys.modules.keys()))"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said.strip() == "[]"


def test_the_wheels_have_the_versions_of_the_environment() -> None:
    names = (*wheels.TRAINER, *wheels.BARE, *wheels.OPTIONAL)
    assert all("==" in one for one in wheels.pinned(names))
    assert len(wheels.pinned(names)) == len(names)


@pytest.mark.filterwarnings("ignore")  # the compiler warns
def test_the_work_of_an_image_is_that_of_the_network() -> None:
    keys = "model.width=1152 model.depth=28 model.heads=16 model.patch=2 data.size=32"
    config = expect(
        load(BASE, [*keys.split(), "data.channels=4", "train.micro_batch=auto"]),
        Pretrain,
        source=BASE,
    )
    macs = network_macs(config)
    tflop = (training_flops(macs) - 6 * macs["attention"]) / 1e12
    assert tflop == pytest.approx(0.686, abs=0.0005)
    # Its backward pass has five products for two forward.
    assert 7 * macs["attention"] / 1e12 == pytest.approx(0.0296, abs=5e-5)
    less, more = (predicted_gb(config, micro_batch=size) for size in (8, 32))
    assert 5 < less < more


def test_a_rate_is_the_median_over_the_records() -> None:
    train_s = [0.0, 1.0, 2.0, 3.0, 8.0, 9.0]
    steps = [{"step": 2 * n, "train_s": s, "data_s": s / 10, "host_bound": 0.5}
             for n, s in enumerate(train_s)]  # fmt: skip
    found = steady_rate(steps, images=256)
    assert (found["images_per_s"], found["host_bound"]) == (512, 0.5)
    assert found["data_share"] == pytest.approx(0.1)


def test_power_and_clocks_are_the_means_of_the_time_that_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = {"Name": "NVIDIA H100", "UUID": "GPU-0", "PowerUsage": 650_000, "SM": [1410, 1430],
           "MEM": 2619, "ClocksEventReasons": 4, "TemperatureV": 61}  # fmt: skip
    (tmp_path / "gpus.json").write_text(json.dumps([gpu]))
    monkeypatch.setenv("STAND_IN_GPUS", str(tmp_path / "gpus.json"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.syspath_prepend(Path("tests/stand_in").resolve())
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setattr(power, "READING_S", 0.01)
    power._gpu.cache_clear()
    with power.PowerWatch() as watch:
        time.sleep(0.2)
    power._gpu.cache_clear()
    monkeypatch.delitem(sys.modules, "pynvml")
    assert watch.row["power_w"] == 650
    assert 1410 <= watch.row["sm_mhz"] <= 1430
    assert watch.row["throttled_power"] == 1


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
