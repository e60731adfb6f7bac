"""The GPUs of an attempt are sampled while it lasts, and only its own. The driver is a stand-in."""

import importlib
import importlib.metadata
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from configs.errors import ConfigError
from runs.attempt import gpu_sampler
from runs.attempt.gpu_sampler import find_gpus, sample
from runs.gpu_log import THROTTLES, read_gpu_logs

STAND_IN = Path("tests/stand_in").resolve()
A100 = {
    "Name": "NVIDIA A100-SXM4-40GB", "UUID": "GPU-0", "PowerUsage": [300_000, 340_000],
    "TotalEnergyConsumption": [1_000_000, 1_300_000, 1_600_000, 1_900_000], "SM": [1410, 1110],
    "MaxSM": 1410, "ClocksEventReasons": [0, 4, 0x40, 0], "UtilizationRates": 90,
    "MemoryInfo": 30_000_000_000, "TemperatureV": [60, 70],
}  # fmt: skip
OLD = {name: value for name, value in A100.items() if name not in (
    "TotalEnergyConsumption", "ClocksEventReasons", "TemperatureV",
)} | {"ClocksThrottleReasons": 0x88, "Temperature": 50, "UUID": "GPU-1"}  # fmt: skip
MIG = {"UUID": "MIG-5", "parent": 0, "MemoryInfo": 4_000_000_000}


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Plants GPUs; the stand-in, initialised."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)

    def plant(*gpus: dict[str, Any]):
        (tmp_path / "gpus.json").write_text(json.dumps(gpus))
        monkeypatch.setenv("STAND_IN_GPUS", str(tmp_path / "gpus.json"))
        monkeypatch.syspath_prepend(STAND_IN)
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)
        found = importlib.import_module("pynvml")
        assert Path(found.__file__ or "").parent == STAND_IN
        found.nvmlInit()
        return found

    yield plant
    sys.modules.pop("pynvml", None)


def lines_of(nvml, *, ranks: int, seconds: int, monkeypatch) -> list[dict[str, Any]]:
    """Sample for some seconds of virtual time, at whose end the parent is gone."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(os, "getppid", lambda: 7 if now[0] < 1000 + seconds else 1)
    file = io.StringIO()
    sample(file, find_gpus(ranks, nvml=nvml), parent=7)
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_a_row_of_ten_seconds_holds_means_maxima_and_the_counter(nvml, monkeypatch) -> None:
    facts, first, *rest = lines_of(nvml(A100), ranks=1, seconds=25, monkeypatch=monkeypatch)
    assert facts["gpus"] == [{"energy_j": 1300.0, "max_sm_mhz": 1410}]
    assert {name: first[name] for name in ("time", "span_s", "gpu")} == {
        "time": 1010.0, "span_s": 10.0, "gpu": 0,
    }  # fmt: skip
    assert 300 < first["power_w"] < 340
    assert 1110 < first["sm_mhz"] < 1410
    assert (first["temperature_c"], first["memory_gb"], first["busy"]) == (70, 30.0, 0.9)
    assert first["throttled_power"] + first["throttled_heat"] == pytest.approx(0.5, abs=0.06)
    assert first["throttled_hardware"] == first["throttled_setting"] == 0
    # The last row holds the seconds until the parent was gone.
    assert [row["span_s"] for row in rest] == [10.0, 5.0]


def test_an_old_driver_lacks_only_what_it_does_not_have(nvml, monkeypatch) -> None:
    facts, row = lines_of(nvml(OLD), ranks=1, seconds=5, monkeypatch=monkeypatch)
    assert "energy_j" not in {*facts["gpus"][0], *row}
    # The power brake: the supply of the node fails, and no limit of its power is reached.
    assert (row["throttled_hardware"], row["throttled_power"]) == (1.0, 0.0)
    assert row["temperature_c"] == 50
    assert "others" not in row


def test_an_instance_has_its_own_memory_no_utilisation_and_the_power_of_its_card(
    nvml, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-5")
    lines = lines_of(nvml(A100, MIG), ranks=1, seconds=5, monkeypatch=monkeypatch)
    assert lines[0]["gpus"][0]["mig"] == 1
    assert lines[1]["memory_gb"] == 4.0
    assert "busy" not in lines[1]
    assert lines[1]["power_w"] > 300
    log = tmp_path / "gpu" / "n1.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [one.whole_card for one in read_gpu_logs(tmp_path)] == ["MIG"]


def test_only_the_gpus_of_the_ranks_are_sampled(nvml, monkeypatch) -> None:
    found = nvml(A100, OLD)
    assert [gpu.facts.get("energy_j") for gpu in find_gpus(1, nvml=found)] == [1300.0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    assert [gpu.facts.get("energy_j") for gpu in find_gpus(2, nvml=found)] == [None]


def test_gpus_that_cuda_may_number_otherwise_are_not_guessed(nvml, monkeypatch) -> None:
    found = nvml(A100, OLD | {"Name": "NVIDIA T4"})
    with pytest.raises(ConfigError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        find_gpus(1, nvml=found)
    assert len(find_gpus(2, nvml=found)) == 2
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert len(find_gpus(1, nvml=found)) == 1


def test_processes_of_others_are_counted_if_ours_are_seen(nvml, monkeypatch) -> None:
    """The pid of this test is ours, that of init is not; a pid in another namespace is unknown."""
    mine = os.getpid()
    for pids, others in (([mine, 1], 1), ([mine], 0), ([1, 4_000_000], None), ([], None)):
        (gpu,) = find_gpus(1, nvml=nvml(A100 | {"UUID": "GPU-0"}))
        gpu._own.answers["ComputeRunningProcesses"] = pids
        assert gpu.row(mine).get("others") == others


def test_the_stand_in_answers_as_the_real_package_does(nvml, monkeypatch) -> None:
    """Names, and the parameters that a caller must give, are those of the pinned package."""
    stand_in = nvml(A100)
    real_file = importlib.metadata.distribution("nvidia-ml-py").locate_file("pynvml.py")
    spec = importlib.util.spec_from_file_location("real_pynvml", str(real_file))
    assert spec is not None
    assert spec.loader is not None
    real = importlib.util.module_from_spec(spec)
    # Its enumerations look themselves up there.
    monkeypatch.setitem(sys.modules, "real_pynvml", real)
    spec.loader.exec_module(real)
    names = [name for name in vars(stand_in) if name.startswith(("nvml", "NVML"))]
    source = inspect.getsource(gpu_sampler)
    assert {*re.findall(r"nvml\.(\w+)", source)} <= {*names}
    for name in names:
        ours, theirs = getattr(stand_in, name), getattr(real, name)
        if inspect.isfunction(ours):
            needed = [
                p for p in inspect.signature(theirs).parameters.values() if p.default is p.empty
            ]
            assert len(inspect.signature(ours).parameters) == len(needed), name
        elif isinstance(ours, type):
            assert issubclass(theirs, real.NVMLError), name
        else:
            assert ours == theirs, name
    bits = {
        "power": real.nvmlClocksEventReasonSwPowerCap,
        "heat": real.nvmlClocksEventReasonSwThermalSlowdown
        | real.nvmlClocksEventReasonHwThermalSlowdown,
        "hardware": real.nvmlClocksEventReasonHwSlowdown
        | real.nvmlClocksEventReasonHwPowerBrakeSlowdown,
        "setting": real.nvmlClocksEventReasonApplicationsClocksSetting
        | real.nvmlClocksEventReasonSyncBoost,
    }
    assert bits == THROTTLES


@pytest.fixture
def agent(tmp_path: Path):
    """Start a shell that starts the sampler and becomes a program, as jobs/agent.sh does."""
    begun: list[subprocess.Popen[str]] = []

    def start(*gpus: dict[str, Any]) -> subprocess.Popen[str]:
        (tmp_path / "gpus.json").write_text(json.dumps(gpus))
        path = os.pathsep.join([*([str(STAND_IN)] if gpus else []), str(Path.cwd())])
        kept = {n: v for n, v in os.environ.items() if not n.startswith("SLURM")}
        changes = {
            "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "ATTEMPT": str(tmp_path),
            "STAND_IN_GPUS": str(tmp_path / "gpus.json"), "CUDA_VISIBLE_DEVICES": "0",
            "SLURMD_NODENAME": "n1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        script = "source jobs/agents.sh; trap '' USR1 TERM; start_gpu_sampler 1; exec sleep 100"
        begun.append(
            subprocess.Popen(
                # In a background job of a shell, INT is ignored from the start.
                ["env", "--default-signal=INT", "bash", "-euo", "pipefail", "-c", script],
                env=kept | changes, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
        return begun[-1]

    yield start
    for program in begun:
        program.kill()
        program.wait()
        assert program.stdout is not None
        program.stdout.close()


def wait_until(is_so) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_sampler_ends_with_a_program_that_is_killed(number: int, agent, tmp_path) -> None:
    program = agent(A100)
    file = tmp_path / "gpu" / "n1.jsonl"
    wait_until(lambda: file.exists() and file.read_text())
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    (sampler,) = (
        pid for pid in children if "gpu_sampler" in Path(f"/proc/{pid}/cmdline").read_text()
    )
    for gentle in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        os.kill(int(sampler), gentle)
    time.sleep(0.2)
    assert Path(f"/proc/{sampler}").exists()
    program.send_signal(number)
    wait_until(lambda: not Path(f"/proc/{sampler}").exists())
    # The seconds since the last row are not lost.
    (log,) = read_gpu_logs(tmp_path)
    assert [row["gpu"] for row in log.rows] == [0]
    assert program.communicate()[0] == ""


def test_without_a_driver_it_says_so_once_and_leaves(agent, tmp_path: Path) -> None:
    program = agent()
    said = program.stdout.readline()
    program.kill()
    assert (
        said + program.communicate()[0] == "no GPU readings on n1: NVML Shared Library Not Found\n"
    )
    assert not (tmp_path / "gpu").exists()
