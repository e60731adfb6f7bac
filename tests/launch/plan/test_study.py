"""A plan: the cells, their order, their cost, and the ones that do not fit."""

from pathlib import Path

import pytest

from configs.grid.study_file import load_grid
from configs.schema import Pretrain
from configs.yaml12 import dump_yaml
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from launch.plan.study import Plan, make_plan
from runs.folder import ROOT
from tests.launch.conftest import DIGITS, FITS

SIZES = {"small": {"model.depth": 2}, "huge": {"model.depth": 60, "model.width": 4096,
         "model.heads": 32}}  # fmt: skip


def study(tmp_path: Path, **keys: object) -> Path:
    file = tmp_path / "s.yaml"
    file.write_text(dump_yaml({"kind": "study", "base": str(DIGITS), **keys}))
    return file


def planned(file: Path, *overrides: str) -> Plan:
    return make_plan(load_grid(file, list(overrides)), with_forecast=False)


# Studies that need no data other than what the suite contains.
GRIDS = {
    "a-0.5b": 252, "a-7b": 396, "a-auto": 72, "a-grid-small": 8, "d-grid-small": 8,
    "d-options-small": 4, "e-layouts": 16, "e-layouts-small": 8,
}  # fmt: skip


@pytest.mark.parametrize("name", GRIDS)
def test_the_grids_that_need_no_data_can_be_planned(name: str) -> None:
    plan = planned(ROOT / "configs" / "studies" / f"{name}.yaml")
    assert len(plan.grid.cells) == GRIDS[name]
    assert len(plan.rows) == 3 * len(plan.grid.cells)


def test_a_study_with_missing_data_is_planned_but_not_submitted(launch, site: Path) -> None:
    file = ROOT / "configs" / "studies" / "d-grid.yaml"
    words = ("data.path=/no/such/folder",)
    code, out, _ = launch("plan", file, *words)
    assert (code, "144 runs, " in out) == (1, True)
    assert "data.path /no/such/folder: no such" in out
    assert "and 36 more; --all shows them" in out
    code, out, err = launch("submit", file, *words)
    assert (code, out) == (2, "")
    assert "data.path /no/such/folder: no such" in err
    assert not site.exists()


def forecast_by_size(configs: list[Pretrain]) -> list[ForecastAnswer]:
    """Forecast that a network of 60 blocks is too large."""
    huge = {"fits": False, "gib": {"total": 90, "peak": 90}, "capacity_gib": 45,
            "reason": "not even one image fits into 45 GiB", "fix": "a smaller model"}  # fmt: skip
    return [
        ForecastAnswer(gpus={"a40": huge if config.model.depth == 60 else FITS})
        for config in configs
    ]


def test_a_cell_too_large_for_its_gpu_is_left_out_with_the_reason(
    tmp_path: Path, launch, slurm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "ask", forecast_by_size)
    file = study(tmp_path, axes={"size": SIZES}, repeats=2)
    reason = "huge: a40: not even one image fits into 45 GiB; would fit: a smaller model"
    code, out, _ = launch("plan", file)
    assert (code, reason in " ".join(out.split())) == (0, True)
    code, out, err = launch("submit", file)
    assert (code, out.splitlines()[1]) == (0, "jobs: 101 to 102 (2 runs)")
    code, out, err = launch("submit", file, "--force", "--new")
    assert (code, out.splitlines()[1]) == (0, "jobs: 104 to 107 (4 runs)")
    code, out, err = launch("submit", file, "size=huge")
    assert (code, out) == (2, "")
    assert f"no cell fits; left out by forecast (--force keeps it): {reason}" in err


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("python says no"),
        [{"error": "no such thing"}, {}],
        [{"gpus": {}}, {"gpus": {"a40": {"fits": True}}}],
    ],
)
def test_cells_without_a_forecast_can_be_submitted(
    answer: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_forecast: None
) -> None:
    def ask(configs: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(forecast, "_ask", ask)
    plan = make_plan(load_grid(study(tmp_path), ["seed=1,2"]), with_forecast=True)
    assert len(plan.rows) == 2


def test_a_cell_within_the_margin_can_be_submitted() -> None:
    gpu = {"fits": False, "gib": {"peak": 48.0}, "capacity_gib": 45.0, "reason": "r", "fix": "m"}
    assert ForecastAnswer(gpus={"a40": gpu}).too_large() is None
    larger = gpu | {"gib": {"peak": 60.0}}
    assert ForecastAnswer(gpus={"a40": larger}).too_large() == "a40: r; would fit: m"
    gpus = {"a40": larger, "a100": gpu | {"fits": True}}
    assert ForecastAnswer(gpus=gpus).too_large() is None


def test_the_order_is_by_passes_each_shuffled(tmp_path: Path) -> None:
    file = study(tmp_path, axes={"train.steps": list(range(1, 21))}, repeats=3)
    plan = planned(file)
    runs = plan.rows
    passes = [
        [plan.cells[run.cell].name for run in runs if run.repeat == repeat] for repeat in (1, 2, 3)
    ]
    assert [run.repeat for run in runs] == [1] * 20 + [2] * 20 + [3] * 20
    assert len({tuple(one) for one in passes}) == 3
    assert len({tuple(sorted(one)) for one in passes}) == 1
    assert [run.cell for run in planned(file).rows] == [run.cell for run in runs]


def test_each_seed_is_a_pass(tmp_path: Path) -> None:
    plan = planned(study(tmp_path, axes={"train.steps": [1, 2, 3], "seed": [5, 6]}))
    assert [plan.cells[run.cell].config.seed for run in plan.rows] == [5, 5, 5, 6, 6, 6]
    assert "repeats: by seed (2)" in plan.remarks[0]


def test_the_maximum_cost_is_time_limits_times_gpus(tmp_path: Path) -> None:
    axes = {"resources.nodes": [1, 2], "resources.gpus_per_node": [1, 2]}
    plan = planned(study(tmp_path, axes=axes, set={"resources.hours": 0.5}, repeats=3))
    hours = sum(cell.config.resources.gpu_hours for cell in plan.cells.values())
    assert hours == 3 * 0.5 * (1 + 2 + 2 + 4)
    assert len({run.shape for run in plan.rows}) == 4


def test_shapes_are_equal_only_if_all_resources_are(tmp_path: Path) -> None:
    axes = {"resources.hours": [1, 1.5], "resources.memory_gb": [None, 8], "seed": [1, 2]}
    plan = planned(study(tmp_path, axes=axes))
    assert sorted({run.shape for run in plan.rows}) == [
        "1x1-any-1.0h-8cpu", "1x1-any-1.0h-8cpu-8gb", "1x1-any-1.5h-8cpu", "1x1-any-1.5h-8cpu-8gb",
    ]  # fmt: skip
