"""Configs are loaded strictly, and errors name the fix."""

from pathlib import Path

import pytest

from configs.errors import ConfigError
from configs.load import flatten, load, merge, parse_overrides, resolve, to_tree
from configs.schema import KINDS, MODELS, keys
from configs.schema.removed import REMOVED_KEYS, Removed
from configs.yaml12 import dump_yaml, parse_yaml

SHIPPED = [file for kind in KINDS for file in sorted(Path("configs", kind).glob("*.yaml"))]
GOLDEN = Path(__file__).parent / "golden"


def refusal(tree: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(tree, source="my.yaml")
    return str(caught.value)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_config_resolves_to_its_golden_text(path: Path) -> None:
    expected = (GOLDEN / path.name).read_text(encoding="utf-8")
    # The folder of a program is absolute.
    expected = expected.replace("CHECKOUT", str(Path.cwd()))
    assert dump_yaml(to_tree(load(path))) == expected


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_config_opens_with_a_comment_and_lists_only_differences(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    defaults = {name: info.default for name, info in keys(load(path).kind).items()}
    listed = flatten(parse_yaml(text, source=str(path)))
    same = [name for name, value in listed.items() if name in defaults and defaults[name] == value]
    # The header keys are listed even if they have the default.
    header = {"kind", "data.source", "train.steps"}
    assert set(same) <= header | {"model.width", "model.depth", "model.heads", "model.patch"}


def test_a_resolved_config_resolves_to_itself() -> None:
    config = load(SHIPPED[0])
    assert resolve(to_tree(config), source="x") == config


@pytest.mark.parametrize("name", keys("pretrain"))
def test_every_misspelt_key_is_refused_with_the_right_one(name: str) -> None:
    group, dot, leaf = name.rpartition(".")
    wrong = f"{group}{dot}{leaf[:-1]}{'q' if leaf[-1] != 'q' else 'x'}"
    message = refusal(merge({}, {wrong: 1}))
    assert f"unknown key {wrong}" in message
    assert "did you mean" in message or "ditbench show pretrain" in message


def test_the_error_for_a_key_in_the_wrong_group_names_the_right_group() -> None:
    assert refusal({"lr": 1}) == "my.yaml: unknown key lr; did you mean optimizer.lr?"


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("resource.gpu", "resources.gpu"), ("trainsteps", "train.steps"),
        ("train.step", "train.steps"), ("model.lr", "optimizer.lr"), ("steps", "train.steps"),
        ("gpus", "resources.gpus_per_node"), ("batch", "train.global_batch"),
    ],
)  # fmt: skip
def test_the_hint_is_the_key_that_was_meant(wrong: str, right: str) -> None:
    assert refusal(merge({}, {wrong: 1})) in (
        f"my.yaml: unknown key {wrong}; did you mean {right}?",
        f"my.yaml: unknown key {wrong.partition('.')[0]}; did you mean {right.partition('.')[0]}?",
    )


def test_a_study_without_its_kind_is_told_so_once() -> None:
    tree = {"base": "x.yaml", "axes": {"seed": [1, 2]}, "repeats": 3}
    assert refusal(tree) == "my.yaml: no kind; its keys belong to kind: study"


def test_a_removed_key_is_dropped_at_its_default_and_else_refused_with_what_replaced_it(
    monkeypatch,
) -> None:
    monkeypatch.setitem(
        REMOVED_KEYS, "train.updates", Removed(default=0, instead="set train.steps")
    )
    assert resolve({"train": {"updates": 0, "steps": 5}}, source="my.yaml").last_step() == 5
    assert refusal({"train": {"updates": 1}}) == "my.yaml: train.updates: removed; set train.steps"


def test_a_removed_value_is_refused_with_what_replaced_it() -> None:
    message = "my.yaml: optimizer.kind schedule_free: removed; set adamw with optimizer.decay"
    assert refusal({"optimizer": {"kind": "schedule_free"}}) == message


@pytest.mark.parametrize("name", keys("pretrain"))
def test_every_key_refuses_a_value_of_another_type(name: str) -> None:
    message = refusal(merge({}, {name: {"nested": 1}}))
    assert name in message


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"train": {"steps": "200"}},
            "train.steps (steps): expected a valid integer, found the text '200'",
        ),
        ({"train": 3}, "train: expected a group of keys, found the integer 3"),
        (
            {"train": {"precision": "bf17"}},
            "train.precision: expected 'fp32', 'tf32' or 'bf16', found the text 'bf17'",
        ),
        ({"kind": "pretrian"}, f"kind is 'pretrian'; expected one of {', '.join(MODELS)}"),
        ({"model": {"qk_norm": 1}}, "model.qk_norm: expected a valid boolean, found the integer 1"),
        ({"optimizer": {"lr": 0}}, "optimizer.lr: expected greater than 0, found the integer 0"),
        (
            {"model": {"width": 100}},
            "model.width 100 is not a multiple of model.heads 6",
        ),
        (
            {"model": {"width": 36}},
            "model.width / model.heads is 6: 2D rotary positions need a multiple of 4",
        ),
        ({"model": {"patch": 3}}, "data.size 8 is not a multiple of model.patch 3"),
        (
            {"data": {"source": "cifar10"}},
            "data.source cifar10 needs data.path, the folder of its data",
        ),
        (
            {"kind": "encode", "encode": {"images": "x", "vae": "y"}},
            "encode.out must be set: folder of the new store",
        ),
        (
            {"data": {"source": "digits", "path": "x"}},
            "data.source digits takes no data.path: remove it",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(
    tree: dict[str, object], message: str
) -> None:
    assert refusal(tree) == f"my.yaml: {message}"


def test_overrides_are_yaml_scalars_on_dotted_keys() -> None:
    flat = parse_overrides(["train.steps=200", "optimizer.lr=1e-4", "train.compile=true"])
    assert flat == {"train.steps": 200, "optimizer.lr": 1e-4, "train.compile": True}
    assert merge({"train": {"steps": 1, "compile": False}}, flat)["train"] == {
        "steps": 200,
        "compile": True,
    }


@pytest.mark.parametrize("override", ["train.steps", "=3", "train.steps 200"])
def test_an_override_without_key_or_value_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_overrides([override])


def test_the_error_for_a_missing_file_names_a_similar_one(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text("seed: 1\n")
    with pytest.raises(ConfigError, match=r"no such file; did you mean .*digits\.yaml"):
        load(tmp_path / "digit.yaml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"seed: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "a.yaml")


def test_every_key_has_a_description_and_known_tags() -> None:
    for kind in KINDS:
        for info in keys(kind).values():
            assert info.doc, info.name
            assert info.affects <= {"loss", "clock", "resources", "validation"}, info.name


def test_keys_that_affect_the_loss_cannot_change_on_resume() -> None:
    bound = {name for name, info in keys("pretrain").items() if not info.free}
    assert {"seed", "train.global_batch", "optimizer.lr", "model.width", "train.precision"} <= bound
    free = set(keys("pretrain")) - bound
    assert {"train.steps", "train.micro_batch", "checkpoint.every", "layout.shard"} <= free
