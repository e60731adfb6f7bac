"""Every check of preflight reports pass, warn or fail with a fix."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.load import load, to_tree
from configs.run.folder import ROOT, make_run
from configs.run.records import RecordWriter
from configs.schema import Pretrain
from launch.forecast import ForecastAnswer
from launch.preflight import machine, memory, signal_lead, storage
from launch.preflight.check import CheckResult, failure
from launch.preflight.command import checks, show
from launch.preflight.storage import Room, rooms
from launch.submit.run import run_request
from launch.submit.script import RunRequest
from tests.launch.conftest import DIGITS

Launch = Callable[..., tuple[int, str, str]]
Command = Callable[[str, str], Path]

SBATCH = "[[ $* == --test-only ]] && exit 0; exit 1"
SINFO = "echo 'gpu*|2-00:00:00|1-infinite'"
SMALL = ForecastAnswer(parameters=1_000_000, gpus={})


@pytest.fixture
def slurm(command: Command) -> None:
    """A cluster with one partition that accepts every request."""
    command("sbatch", SBATCH)
    command("sinfo", SINFO)


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import torch, which takes seconds, only in the tests about it."""
    if "torch" not in request.node.name:
        script = machine._TORCH.replace("sys, torch; print(torch.__version__", "sys; print('2.0'")
        assert script != machine._TORCH
        monkeypatch.setattr(machine, "_TORCH", script)


def subject(*overrides: str, source: Path = DIGITS) -> RunRequest:
    return run_request(source, list(overrides), site_name=None, extra={})


def only(lines: list[CheckResult]) -> CheckResult:
    (line,) = lines
    return line


def test_a_config_that_can_run_passes_line_by_line_torch_too(
    launch: Launch, slurm: None, site: Path
) -> None:
    site.mkdir()
    code, out, err = launch("preflight", DIGITS, "resources.gpu=a40")
    assert code == 0, out
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert {level for level, *_ in lines} == {"pass"}, out
    topics = [line[6:18].strip() for line in out.splitlines()]
    assert topics == [
        "data", "batch", "site", "cluster", "modules", "virtualenv", "storage",
        "lead time", "gpu memory", "host memory",
    ]  # fmt: skip
    assert err == "10 pass, 0 warn, 0 fail\n"


def test_a_request_that_the_cluster_refuses_fails_with_a_fix(
    launch: Launch, command: Command
) -> None:
    command("sbatch", "echo 'sbatch: error: invalid gres' >&2; exit 1")
    command("sinfo", SINFO)
    code, out, _ = launch("preflight", DIGITS, "resources.hours=72")
    assert code == 1
    assert "fail  cluster       partition gpu allows 48:00:00, not 72:00:00: lower" in out
    out = launch("preflight", DIGITS)[1]
    assert "fail  cluster       sbatch refuses --nodes=1 --gpus-per-node=1" in out
    assert "change resources.gpu" in out


def test_without_slurm_the_cluster_check_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checks(subject())
    next(line for line in found if line.topic == "site")
    monkeypatch.setenv("PATH", "/nowhere")
    line = next(found)
    assert (line.topic, line.level, line.message) == ("cluster", "warn", "Slurm not found")


def test_an_invalid_config_gives_a_single_line(launch: Launch) -> None:
    code, out, _ = launch("preflight", DIGITS, "train.stps=1")
    assert code == 1
    assert out.startswith("fail  config")
    assert "did you mean train.steps?" in out


def test_a_batch_and_a_path_that_do_not_fit_fail(launch: Launch, slurm: None) -> None:
    config = ROOT / "configs" / "pretrain" / "cifar10.yaml"
    data = "data.path=/no/such/folder"
    code, out, _ = launch("preflight", config, data, "resources.nodes=3", "train.global_batch=256")
    assert code == 1
    assert "fail  batch" in out
    assert "fail  data          data.path /no/such/folder: no such folder; create it or name" in out


def test_a_broken_site_fails(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("VENV", str(tmp_path))
    out = launch("preflight", DIGITS)[1]
    assert f"fail  site          no virtualenv in {tmp_path}; create it with env/create.sh" in out


def test_a_virtualenv_without_torch_fails(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    (folder / "activate").write_text(f'PATH="{folder}:$PATH"\n')
    monkeypatch.setenv("VENV", str(tmp_path))
    out = launch("preflight", DIGITS)[1]
    assert "fail  virtualenv    torch cannot be imported: ModuleNotFoundError" in out


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("", "pass  node          its driver fits torch, and it can compile"),
        (
            "echo Traceback; echo 'configs.errors.ConfigError: needs gcc:  load it'; exit 1",
            "fail  node          needs gcc: load it",
        ),
        ("echo 'invalid account' >&2; exit 1", "fail  node          invalid account"),
    ],
)
def test_a_compute_node_is_asked_in_a_job_with_the_flags_of_the_run(
    launch: Launch, slurm: None, command: Command, answer: str, line: str, tmp_path: Path
) -> None:
    command("srun", f"printf '%s\\n' \"$@\" >{tmp_path}/words; {answer}")
    keys = ("resources.gpus_per_node=2", "resources.nodes=3", "train.compile=true")
    assert line in launch("preflight", DIGITS, *keys, "--test")[1]
    words = (tmp_path / "words").read_text()
    assert "--gpus-per-node=2\n" in words
    # srun takes the last of several: one node, for a few minutes.
    assert words.rindex("--nodes=1\n") > words.rindex("--nodes=3\n")
    assert words.endswith("\nnode.check_compiler()\n")


def test_no_job_is_run_unless_it_is_asked_for(
    launch: Launch, slurm: None, command: Command, tmp_path: Path
) -> None:
    command("srun", f"touch {tmp_path}/ran")
    assert " node " not in launch("preflight", DIGITS)[1]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("module", "level"),
    [
        ("() { echo 'ERROR: Unable to locate a modulefile for gcc' >&2\n}", "fail"),
        ("() { :\n}", "pass"),
    ],
)
def test_modules_of_the_site_are_loaded(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch, module: str, level: str
) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", module)
    out = launch("preflight", DIGITS, "--site", "carc-discovery")[1]
    assert f"{level}  modules " in out


def test_a_checkpoint_holds_weights_average_and_two_moments_in_fp32() -> None:
    with_average, without = subject().config, subject("train.ema_decay=null").config
    assert isinstance(with_average, Pretrain)
    assert isinstance(without, Pretrain)
    assert storage.checkpoint_bytes(with_average, 1000) == 16_000
    assert storage.checkpoint_bytes(without, 1000) == 12_000


@pytest.mark.parametrize(
    ("room", "level"),
    [
        (Room(source="a quota", size=64_000_000, files=None), "pass"),
        (Room(source="a quota", size=63_999_999, files=None), "fail"),
        (Room(source="a quota", size=None, files=12), "pass"),
        (Room(source="a quota", size=None, files=11), "fail"),
    ],
)
def test_one_more_checkpoint_than_are_kept_must_fit(
    monkeypatch: pytest.MonkeyPatch, room: Room, level: str
) -> None:
    monkeypatch.setattr(storage, "rooms", lambda folder: iter([room]))
    line = only([*storage.room(subject("checkpoint.keep=3"), SMALL)])
    assert line.level == level
    if level == "fail":
        assert "a quota leaves" in line.message


def test_the_size_of_what_a_users_program_writes_is_said_to_be_unknown() -> None:
    program = subject(source=DIGITS.parents[1] / "command" / "softmax.yaml")
    line = only([*storage.room(program, ForecastAnswer(remark="kind command"))])
    assert (line.level, "unknown" in line.message) == ("warn", True)


def test_quotas_are_read(command: Command, tmp_path: Path) -> None:
    command("lfs", 'echo "$5 [1000]* 900 2000 - 50 0 60 -"')
    command("quota", "printf 'Disk quotas for user a:\\n/dev/x 500 0 700 0 10 0 0 0\\n'")
    disk, lustre, quota = rooms(tmp_path)
    assert disk.size is not None
    assert (lustre.size, lustre.files) == (1000 * 1024, 10)
    assert (quota.size, quota.files) == (200 * 1024, None)


def test_the_lead_is_compared_with_measured_saves(site: Path) -> None:
    run = make_run("digits", to_tree(load(DIGITS, [])), identity="1")
    writer = RecordWriter(run.path, attempt=1)
    writer.event("saved", step=10)
    writer.event("saved", step=20)
    writer.write(step=20, loss=1.0, train_s=100.0, save_s=300.0)
    writer.close()
    line = only([*signal_lead.lead(subject(), SMALL)])
    # 60 s, a step of 5 s, a save of 150 s; the template requests 180 s.
    assert line.level == "fail"
    assert "215 s needed (measured in 1 earlier runs of this model)" in line.message
    assert "--signal=B:USR1@245" in line.fix
    other = only([*signal_lead.lead(subject("model.depth=2"), SMALL)])
    assert other.level == "pass"
    assert "no run of this model is in LOGS" in other.message


def test_a_save_that_is_estimated_too_long_is_a_warning() -> None:
    line = only([*signal_lead.lead(subject(), ForecastAnswer(parameters=7_000_000_000, gpus={}))])
    assert line.level == "warn"


FITS = {"fits": True, "gib": {"total": 3.0}, "capacity_gib": 44.7}
TIGHT = {"fits": False, "reason": "takes 50 GiB of 45", "fix": "train.micro_batch=8"}


@pytest.mark.parametrize(
    ("gpus", "level", "fix"),
    [
        ({"a40": FITS}, "pass", ""),
        ({"a40": TIGHT}, "fail", "train.micro_batch=8"),
        ({"a40": TIGHT, "h100": FITS}, "warn", "set resources.gpu to one of h100, or"),
        ({}, "warn", ""),
    ],
)
def test_the_memory_of_the_gpu_is_forecast(
    gpus: dict[str, dict[str, object]], level: str, fix: str
) -> None:
    line = only(
        [
            *memory.gpu_memory(
                subject(), ForecastAnswer(parameters=1, gpus=gpus, remark="no such GPU")
            )
        ]
    )
    assert line.level == level
    assert line.fix.startswith(fix)


@pytest.mark.parametrize(
    ("keys", "level", "need"),
    [
        ([], "pass", 24),
        (["resources.memory_gb=16"], "warn", 24),
        (["checkpoint.asynchronous=true", "resources.memory_gb=128"], "fail", 24 + 16 * 10),
        (["checkpoint.asynchronous=true", "resources.nodes=2", "resources.memory_gb=104"], "pass",
         24 + 8 * 10),
        (["model.init_from=LICENSE", "resources.memory_gb=400"], "pass", 24 + 8 * 4 * 10),
    ],
)  # fmt: skip
def test_host_memory_is_refused_if_it_cannot_hold_what_ranks_read_or_stage(
    keys: list[str], level: str, need: int
) -> None:
    request = subject("resources.gpus_per_node=8", *keys)
    answer = ForecastAnswer(parameters=10 * 2**30)
    line = only([*memory.host_memory(request, answer)])
    assert line.level == level
    assert f"of {need} GiB" in line.message
    assert level == "pass" or line.fix.startswith(f"resources.memory_gb={need}")


def test_a_failed_forecast_is_a_warning() -> None:
    forecast = memory.forecast_of(subject("resources.gpu=abacus"))
    assert forecast.parameters is None
    assert "abacus" in forecast.remark
    line = only([*storage.room(subject(), forecast)])
    assert (line.level, "unknown" in line.message) == ("warn", True)


def test_a_run_is_checked_as_it_would_be_resumed(launch: Launch, slurm: None, site: Path) -> None:
    run = make_run("digits", to_tree(load(DIGITS, [])), identity="1")
    code, out, _ = launch("preflight", run.path, "train.steps=5000")
    assert code == 0, out
    code, out, _ = launch("preflight", run.path, "optimizer.lr=1")
    assert code == 1
    assert "optimizer.lr: cannot change when digits-1 is resumed" in out


def test_a_study_is_checked_cell_by_cell_and_shape_by_shape(
    launch: Launch, slurm: None, site: Path
) -> None:
    site.mkdir()
    grid = ("train.global_batch=64,65,66", "resources.nodes=1,2", "resources.gpu=a40")
    code, out, err = launch("preflight", DIGITS, *grid, "checkpoint.keep=1")
    assert code == 1
    lines = out.splitlines()
    fails = [line for line in lines if line.startswith("fail")]
    assert len(fails) == 1
    assert "train.global_batch 65 does not divide over 2 data ranks" in fails[0]
    assert sum("pass  cluster" in line for line in lines) == 2
    assert sum("lead time" in line for line in lines) == 2
    assert sum("virtualenv" in line for line in lines) == 1
    assert sum("pass  storage" in line for line in lines) == 1
    assert "1 fail" in err


def test_an_invalid_study_gives_a_single_line(launch: Launch) -> None:
    code, out, _ = launch("preflight", DIGITS, "train.stps=1,2")
    assert code == 1
    assert out.count("\n") == 1
    assert out.startswith("fail  config")


def test_variables_that_override_a_plain_sbatch_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, slurm: None
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    levels = {line.topic: line.level for line in checks(subject())}
    assert levels["environment"] == "warn"


def test_a_line_contains_no_terminal_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert show([failure("data", "\x1b[2J\nevil")]) == 1
    assert capsys.readouterr().out == "fail  data          \\x1b[2J evil\n"


def test_a_config_and_a_script_exclude_each_other(launch: Launch) -> None:
    for words in ((), (DIGITS, "--script", "x")):
        with pytest.raises(SystemExit) as end:
            launch("preflight", *words)
        assert end.value.code == 2


def test_a_study_counts_what_all_its_runs_keep_and_names_the_key(
    launch: Launch, slurm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "rooms", lambda folder: iter([Room(source="x", size=1, files=1)]))
    grid = ("seed=1,2", "repeats=3", "throttle=2", "train.steps=900", "resources.gpu=a40")
    for command in ("preflight", "submit"):
        code, out, err = launch(command, DIGITS, *grid)
        # Each of six runs keeps two, of steps 500 and 900; two run at once.
        assert (code, "14 checkpoints of " in out + err) == (1, True)
        assert "fix: checkpoint.keep=1 (then " in out + err
