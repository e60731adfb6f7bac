"""A study resolves to cells: validated, named safely, refused with file, cell and key."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import ConfigError
from configs.grid.cells import LONGEST_NAME, cell_names, repeat_name
from configs.grid.study_file import Grid, is_study, load_grid
from configs.yaml12 import dump_yaml
from launch.__main__ import main
from runs.__main__ import main as runs

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@pytest.fixture
def study(tmp_path: Path):
    """Return a function that writes a study beside a small base and returns its file."""
    (tmp_path / "base.yaml").write_text("train: {steps: 10, global_batch: 8}\n")

    def write(**keys: Any) -> Path:
        file = tmp_path / "my-study.yaml"
        file.write_text(dump_yaml({"kind": "study", "base": "base.yaml", **keys}))
        return file

    return write


def names(grid: Grid) -> list[str]:
    return [cell.name for cell in grid.cells]


def refused(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_grid(path, list(overrides))
    return str(caught.value)


def test_cells_are_every_combination_in_the_order_of_the_axes(study) -> None:
    grid = load_grid(
        study(
            axes={
                "layout": {"ddp": {"layout.shard": 1}, "fsdp": {"layout": {"shard": 8}}},
                "train.global_batch": [64, 128],
                "train.compile": [False, True],
            },
            set={"resources.gpus_per_node": 8, "model": {"depth": 2}},
            question="Why?",
        ),
        [],
    )
    assert names(grid) == [
        "ddp_bs64_cfalse", "ddp_bs64_ctrue", "ddp_bs128_cfalse", "ddp_bs128_ctrue",
        "fsdp_bs64_cfalse", "fsdp_bs64_ctrue", "fsdp_bs128_cfalse", "fsdp_bs128_ctrue",
    ]  # fmt: skip
    last = grid.cells[-1].config
    assert (last.layout.shard, last.train.global_batch, last.train.compile) == (8, 128, True)
    assert (last.model.depth, last.train.steps, last.question) == (2, 10, "Why?")
    assert grid.cells[-1].levels == {
        "layout": "fsdp", "train.global_batch": 128, "train.compile": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"axes": {"train.stps": [1]}}, "cell stps-1: unknown key train.stps; did you mean "
         "train.steps?"),
        ({"axes": {"train.steps": [1, "x"]}}, "cell steps-x: train.steps (steps): expected a valid "
         "integer, found the text 'x'"),
        ({"axes": {"train.steps": 5}}, "train.steps: expected [values]"),
        ({"axes": {"a": [{"train.steps": 5}]}}, "a: several keys at once need a label"),
        ({"axes": {"a": {"x": 5}}}, "a: 'x' is a label and needs the keys that it sets"),
        ({"axes": {"a b": [1]}}, "'a b' is not a name of a key"),
        ({"axes": {"order": {"x": {"seed": 1}}}}, "order is already a column of cells.tsv"),
        ({"axes": {"seed": [1]}, "set": {"seed": 2}}, "seed is set by axis seed and by set"),
        ({"axes": {"kind": ["encode"]}}, "kind must be the same for all cells"),
        ({"axes": {"seed": [1, 1]}}, "have the same config"),
        ({"axes": {"seed": [*range(200)], "train.steps": [*range(1, 100)]}}, "make 19800 cells"),
        ({"axis": {}}, "unknown key axis; did you mean axes?"),
        ({"base": "bass.yaml"}, "bass.yaml: no such file; did you mean"),
        ({"base": "my-study.yaml"}, "is a study itself"),
        ({"base": None}, "base must be set: base config"),
    ],
)  # fmt: skip
def test_an_error_is_named_with_the_fix(keys: dict[str, Any], message: str, study) -> None:
    refusal = refused(study(**keys))
    assert message in refusal
    assert "my-study.yaml" in refusal or "bass.yaml" in refusal


def test_check_validates_all_cells_of_a_study(study, capsys) -> None:
    assert main(["check", str(study(axes={"seed": [1, 2]}))]) == 0
    assert main(["check", str(study(axes={"model.patch": [2, 3]}))]) == 2
    assert "cell ps3: data.size 8 is not a multiple of model.patch 3" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(Path("configs/studies").glob("*.yaml")), ids=str)
def test_a_shipped_study_is_valid_and_opens_with_a_comment(path: Path) -> None:
    assert load_grid(path, []).study.question
    assert path.read_text().startswith("# ")


def test_a_study_is_not_a_config_of_a_run(study, capsys) -> None:
    assert runs(["show", str(study())]) == 2
    assert "a study of many runs" in capsys.readouterr().err


def test_the_command_line_narrows_axes_and_adds_some(study) -> None:
    axes = {"m": {"s": {"model.depth": 1}, "l": {"model.depth": 9}}, "seed": [0, 1]}
    file = study(axes=axes)
    grid = load_grid(file, ["m=s", "optimizer.lr=1e-4,3e-4", "train.steps=3", "repeats=4"])
    assert names(grid) == ["s_s0_lr0.0001", "s_s0_lr0.0003", "s_s1_lr0.0001", "s_s1_lr0.0003"]
    assert {cell.config.train.steps for cell in grid.cells} == {3}
    assert grid.study.repeats == 4
    assert names(load_grid(file, ["seed=7,8"])) == ["s_s7", "s_s8", "l_s7", "l_s8"]
    assert "no such label of the axis; it has s, l" in refused(file, "m=x")
    assert "can be changed only in the file of the study" in refused(file, "axes=3")
    assert "expected one value" in refused(file, "repeats=3,4")


def test_several_values_make_a_study_of_a_plain_config(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("train: {steps: 10}\n")
    assert not is_study(file, ["train.steps=5", 'data.path="/a, b"', "question=Why, oh why?"])
    assert is_study(file, ["train.steps=5,6"])
    assert is_study(file, ["repeats=2"])
    grid = load_grid(file, ["train.steps=5,6", "seed=3", "question=Why, oh why?"])
    assert names(grid) == ["steps-5", "steps-6"]
    assert [cell.config.seed for cell in grid.cells] == [3, 3]
    assert grid.cells[0].config.question == "Why, oh why?"


# Names.
TEXTS = st.text(max_size=60) | st.sampled_from(
    ["$(touch hacked)", "a;b", "-x", "--help", "%j", "..", ".", "", "a\nb", "a\tb", "x" * 300,
     "#SBATCH --uid=0", "é", "A", "a", "a_b", "a-b", "a b", "CON", "1", "true", "\x00", "`id`"]
)  # fmt: skip
VALUES = TEXTS | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none()
COMBINATIONS = st.lists(
    st.fixed_dictionaries({"layout": TEXTS, "train.global_batch": VALUES, "model.mlp": VALUES}),
    min_size=1,
    max_size=12,
    unique_by=lambda levels: dump_yaml(levels),
)


@settings(max_examples=200, deadline=None)
@given(COMBINATIONS)
def test_names_are_safe_and_differ_for_any_values(combinations: list[dict[str, Any]]) -> None:
    found = cell_names(combinations, labelled=frozenset(["layout"]))
    runs = [repeat_name(name, repeat) for name in found for repeat in (1, 2, 12)]
    assert all(SAFE.fullmatch(name) and len(name) <= LONGEST_NAME + 4 for name in runs)
    assert len({name.casefold() for name in runs}) == len(runs)


def test_a_name_does_not_depend_on_the_rest_of_the_study() -> None:
    cells = [{"train.global_batch": 8, "a": "x/y"}, {"train.global_batch": 16, "a": "z"}]
    both = cell_names(cells, labelled=frozenset())
    assert [cell_names([cell], labelled=frozenset())[0] for cell in cells] == both


def test_a_path_is_named_by_its_end() -> None:
    paths = [{"run": f"/scratch/{user}/study-1120/cells/false_long"} for user in ("a", "b")]
    first, second = cell_names(paths, labelled=frozenset())
    assert first.startswith("run-false-long-")
    assert first != second


def test_a_name_names_the_study(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("train: {steps: 10}\n")
    assert load_grid(file, ["train.steps=5,6"]).name == "c"
    assert load_grid(file, ["train.steps=5,6", "name=warm-lr"]).name == "warm-lr"


@pytest.mark.parametrize(
    ("keys", "turn", "message"),
    [
        ({}, 405, "a multiple of log.every 10, at least 200"),
        ({}, 190, "a multiple of log.every 10, at least 200"),
        ({}, 250, "train.steps 600 is not a whole number of turns, at least 3; set it to 750"),
        ({}, 600, "train.steps 600 is not a whole number of turns, at least 3; set it to 1800"),
        ({"resources.gpus_per_node": [1, 2]}, 200, "all need the same resources"),
    ],
)
def test_cells_that_cannot_take_turns_are_refused_with_the_mend(
    study, keys: dict[str, list[int]], turn: int, message: str
) -> None:
    axes = {"train.global_batch": [8, 16]}
    file = study(axes=axes, set={"train.steps": 600}, interleave=200)
    assert load_grid(file, []).study.interleave == 200
    file = study(axes=axes | keys, set={"train.steps": 600}, interleave=turn)
    assert re.search(rf"my-study.yaml, cell .*: interleave {turn}: .*{message}", refused(file))


def test_only_pretraining_takes_turns_and_none_in_a_study_that_stops_when_decided(
    study, tmp_path: Path
) -> None:
    axes, steps = {"train.global_batch": [8, 16]}, {"train.steps": 600}
    file = study(axes=axes, set=steps, interleave=200, stop="decided", repeats=3)
    assert "stop: decided skips runs that wait" in refused(file)
    (tmp_path / "base.yaml").write_text("{kind: gns, run: /none}\n")
    assert "only pretrain runs take turns" in refused(study(axes={"seed": [0, 1]}, interleave=200))
