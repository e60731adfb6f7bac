"""Cards: a real one of this CPU, forecasts by them, their fit, and which of them do not hold."""

import json
import math
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.checks import compute_node
from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.load import expect, load, resolve, to_tree
from configs.schema import Pretrain
from runs import cards
from runs.cards import Card, Fit, card_key, find_card, find_fit
from runs.folder import RunFolder, make_run
from runs.records import RecordWriter
from train.engine.distributed import read_ranks
from train.forecast import card as measurement
from train.forecast.command import main as forecast
from train.forecast.fit import fit_ratios, fit_runs
from train.forecast.measured import CardModel, _along, _near, interval, step_config

CIFAR10 = "configs/pretrain/cifar10.yaml"
SIZES = [(384, 256, 8), (384, 256, 64)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site's folder of cards, empty."""
    (folder := tmp_path / "cards").mkdir()
    monkeypatch.setenv("CARDS", str(folder))
    find_card.cache_clear()
    find_fit.cache_clear()
    return folder


def planted(**changes: Any) -> str:
    """A card of an A40 with 50 TFLOP/s, whose networks take twice the time of their products."""
    of: dict[str, Any] = {"precision": "bf16", "spread": 0.01}
    measured = [
        {"name": "update", "shape": [10_000_000], "value": 2e-3, "spread": 0.01},
        {"name": "all_reduce", "shape": [26_214_400, 2, 1], "value": 4e-3, "spread": 0.01},
    ]
    for d, t, b in SIZES:
        layers = [[b * t, n * d, k * d] for n, k in ((3, 1), (1, 1), (4, 1), (1, 4))]
        taken = [6 * math.prod(shape) / 5e13 for shape in layers]
        shapes = [*layers, [b, 6 * d, d]]
        block = 2 * sum(taken)
        measured += [
            {"name": "product", "shape": shape, "value": 6 * math.prod(shape) / 5e13} | of
            for shape in shapes
        ]
        shape = [b, d // 64, t, 64]
        measured.append({"name": "attention", "shape": shape, "value": block / 8} | of)
        for depth, compiled in ((1, False), (4, False), (1, True), (4, True)):
            step = {"name": "step", "shape": [d, t, b, depth], "compiled": compiled}
            measured.append(step | {"value": depth * block + 1e-3} | of)
    versions = {"torch": cards._torch(), "driver": "580.65"}
    tree = {"device": "NVIDIA A40", "time": 1.0, "versions": versions, "facts": {}}
    return json.dumps(tree | {"measured": measured} | changes)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], str]:
    forecast([CIFAR10, *words, "--gpu", "a40", "--json"])
    found = capsys.readouterr()
    return json.loads(found.out)["gpus"]["a40"]["step_s"], found.err


def test_this_cpu_is_measured_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "_CPU_STEPS", [(64, 16, 2)])
    monkeypatch.setattr(measurement, "_CPU_TOKENS", (32,))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert measurement.main(["--out", str(tmp_path / "card.json"), "--least", "0"]) == 0
    finally:
        torch.set_num_threads(threads)
    card = Card.model_validate_json((tmp_path / "card.json").read_text())
    names = {m.name for m in card.measured}
    assert names == {"product", "attention", "step", "update", "copy", "storage", "launch"}
    assert card.facts == {"threads": 1}
    assert card.versions["torch"] == torch.__version__
    for precision in ("bf16", "fp32"):
        deep = card.of("step", precision)[-1].value
        config = step_config([64, 16, 2, 4], precision=precision, compiled=False)
        model = CardModel(card, precision=precision, compiled=False)
        parts = model.parts(config, divide(config, world=1))
        assert 0.3 * deep < parts.total - parts.update < 3 * deep


def test_no_gradient_of_a_measured_network_is_zero() -> None:
    config = step_config([64, 16, 2, 2], precision="fp32", compiled=False)
    state, batch = measurement.random_state(config, read_ranks())
    state.losses(batch).sum().backward()
    gradients = {name: p.grad for name, p in state.network.named_parameters()}
    assert [name for name, x in gradients.items() if x is None or not x.any()] == []


def test_the_rate_of_a_shape_between_others_is_weighted_towards_the_nearest() -> None:
    rates = [([64, 64], math.log(1.0)), ([1024, 64], math.log(16.0))]
    assert _near(rates, [64, 64]) == pytest.approx(1.0)
    assert _near(rates, [256, 64]) == pytest.approx(4.0)
    # A third as far: 81 times the weight.
    assert _near(rates, [128, 64]) == pytest.approx(16 ** (1 / 82))
    assert 4.0 < _near(rates, [10**9, 64]) < 16.0


@pytest.mark.parametrize(
    ("x", "height"), [(1, 2.0), (2, 4.0), (3, 6.0), (6, 9.0), (8, 10.0), (16, 20.0)]
)
def test_a_line_is_followed_between_its_points_and_in_proportion_beyond(
    x: float, height: float
) -> None:
    assert _along([(8, 10.0), (2, 4.0), (4, 8.0)], x) == pytest.approx(height)
    assert _along([(2, -4.0)], x) == 0.0


def test_a_network_that_was_measured_is_predicted_as_measured() -> None:
    card = Card.model_validate_json(planted())
    model = CardModel(card, precision="bf16", compiled=False)
    for measured in card.of("step", "bf16"):
        config = step_config(measured.shape, precision="bf16", compiled=False)
        parts = model.parts(config, divide(config, world=1))
        assert parts.total - parts.update == pytest.approx(measured.value, rel=0.01)


def test_a_card_replaces_the_rates_of_the_data_sheet(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet, _ = asked(capsys)
    (folder / "a40.json").write_text(planted())
    find_card.cache_clear()
    find_fit.cache_clear()
    fit = Fit(factor=1.5, spread=0.02, runs=20, machines=["a40 bf16"])
    (folder / "fit.json").write_text(fit.model_dump_json())
    fitted, _ = asked(capsys)
    (folder / "fit.json").write_text(
        fit.model_copy(update={"machines": ["a100"]}).model_dump_json()
    )
    find_fit.cache_clear()
    elsewhere, _ = asked(capsys)
    (folder / "fit.json").unlink()
    find_fit.cache_clear()
    plain, remarks = asked(capsys)
    assert (sheet["source"], plain["source"]) == ("data sheet", "card")
    assert fitted["source"] == "card, fitted on 20 runs"
    assert fitted["value"] == pytest.approx(1.5 * plain["value"])
    width = [math.log(one["high"] / one["low"]) for one in (fitted, plain, sheet, elsewhere)]
    assert width[:3] == sorted(width[:3])
    # A fit on other machines moves the step, and is not trusted for its interval.
    assert elsewhere["value"] == fitted["value"]
    assert elsewhere["source"] == "card, fitted on 20 runs of others"
    assert width[3] == pytest.approx(width[1])
    assert remarks == ""
    # 256 images with 6 x 5.4 GMACs in the blocks at 25 TFLOP/s, half of that of their products.
    assert plain["value"] == pytest.approx(256 * 6 * 5.44e9 * 2 / 2.5e13, rel=0.5)


def test_ranks_add_the_sums_that_no_backward_pass_hides(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a40.json").write_text(planted())
    one, _ = asked(capsys, "train.global_batch=64")
    two, _ = asked(capsys, "train.global_batch=128", "--gpus-per-node", "2")
    # The last bucket of DDP.
    assert two["value"] - one["value"] == pytest.approx(4e-3, rel=0.01)
    far, _ = asked(capsys, "train.global_batch=128", "--nodes", "2")
    assert far["source"] == "data sheet"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (planted(versions={"torch": "1.9"}), "was made with torch 1.9"),
        (planted(device="NVIDIA A30"), "is of another device, NVIDIA A30"),
        (planted()[:300], "Invalid JSON"),
        (planted(measured=[]), "measured: "),
        (planted(schema_version=2), "schema_version: "),
        (planted().replace('"update", "shape": [', '"update", "shape": [7, '), "not a shape of it"),
    ],
    ids=["torch", "device", "cut", "empty", "newer", "shape"],
)
def test_a_card_that_does_not_hold_is_ignored_with_a_remark(
    folder: Path, text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a40.json").write_text(text)
    step, remarks = asked(capsys)
    assert step["source"] == "data sheet"
    assert remarks.startswith("ignored: ")
    assert why in remarks
    assert "make it again" in remarks


def test_a_card_holds_where_a_login_node_has_another_driver(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (driver := tmp_path / "version").write_text("NVRM version: NVIDIA Kernel Module 580.65.06")
    monkeypatch.setattr(compute_node, "_NVIDIA_DRIVER", driver)
    (folder / "a40.json").write_text(planted(versions={"driver": "535.1"}))
    step, remarks = asked(capsys)
    assert (step["source"], remarks) == ("card", "")


def test_a_card_without_the_precision_leaves_the_data_sheet(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "a40.json").write_text(planted())
    assert asked(capsys, "train.precision=fp32")[0]["source"] == "data sheet"


def test_only_a_data_sheet_says_that_it_lacks_the_communication(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text, is_said in (("", True), (planted(), False)):
        if text:
            (folder / "a40.json").write_text(text)
        find_card.cache_clear()
        forecast([CIFAR10, "--gpu", "a40"])
        said = capsys.readouterr().out
        assert "images/s" in said
        assert ("without communication" in said) is is_said


def test_float8_leaves_the_data_sheet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a40.json").write_text(planted())
    words = "train.compile=true", "train.precision=bf16"
    assert asked(capsys, *words)[0]["source"] == "card"
    assert asked(capsys, *words, "train.float8=true")[0]["source"] == "data sheet"


def host_card() -> Card:
    """A card with 1 ms for the host to launch a block of a tiny network, and for all else."""
    tree = json.loads(planted())
    for depth in (1, 4):
        tree["measured"].append(
            {"name": "step", "shape": [64, 16, 1, depth], "value": 1e-3 * (depth + 1),
             "precision": "bf16", "spread": 0.01}
        )  # fmt: skip
    return Card.model_validate(tree)


@pytest.mark.parametrize(
    ("mode", "every", "products", "rest"),
    [
        ("none", None, 0.0, 0.0),
        ("selective", None, 0.0, 1.0),
        ("selective", 2, 0.5, 0.5),
        ("full", None, 1.0, 1.0),
    ],
)
def test_checkpointing_costs_the_share_of_the_forward_pass_that_it_repeats(
    mode: str, every: int | None, products: float, rest: float
) -> None:
    model = CardModel(host_card(), precision="bf16", compiled=False)
    plain = step_config([384, 256, 8, 4], precision="bf16", compiled=False)
    tree = to_tree(plain) | {"activation_checkpointing": {"mode": mode, "every": every}}
    layout = divide(plain, world=1)
    before = model.parts(plain, layout)
    after = model.parts(expect(resolve(tree, source="test"), Pretrain, source="test"), layout)
    assert after.products == pytest.approx(before.products * (1 + products / 3), rel=0.01)
    assert after.attention == pytest.approx(before.attention * (1 + products * 2 / 7), rel=0.01)
    assert after.rest == pytest.approx(before.rest * (1 + rest / 3), rel=0.01)
    assert after.host == pytest.approx((4 * (1 + rest / 3) + 1) * 1e-3, rel=0.01)


def test_a_host_that_launches_slower_than_the_gpu_computes_sets_the_pace(folder: Path) -> None:
    model = CardModel(host_card(), precision="bf16", compiled=False)
    config = step_config([64, 16, 1, 12], precision="bf16", compiled=False)
    parts = model.parts(config, divide(config, world=1))
    assert parts.host == pytest.approx(13e-3)
    assert parts.total == pytest.approx(13e-3 + parts.update)


def test_the_fit_is_the_geometric_mean_of_the_ratios() -> None:
    fit = fit_ratios([1.0, 2.0, 4.0], machines=["a40 bf16"] * 3)
    assert fit.factor == pytest.approx(2.0)
    assert fit.spread == pytest.approx(math.log(2))
    assert fit.runs == 3


def test_an_interval_holds_nine_of_ten_unseen_runs() -> None:
    rng, inside, tries = random.Random(7), 0, 4000
    for _ in range(tries):
        fit = fit_ratios([math.exp(rng.gauss(0.1, 0.05)) for _ in range(6)], machines=["a40"])
        unseen = math.exp(rng.gauss(0.1, 0.05)) / fit.factor
        half = interval(0.0, fit, is_fitted=True)
        inside += 1 / half <= unseen <= half
    assert 0.885 < inside / tries < 0.915


def finished_run(
    logs: Path, number: int, *, seconds: float, waited: float = 0.0, records: int = 8
) -> RunFolder:
    """A run on an A40 that took `seconds` per step, and of these `waited` for data."""
    config = to_tree(load(Path(CIFAR10), ["train.compile=false", "train.global_batch=64"]))
    run = make_run(f"run-{number}", config, identity=str(number))
    (run.path / "attempts" / "001").mkdir()
    layout = {"replicate": 1, "shard": 1, "tensor": 1, "micro_batch": 64, "accumulation": 1}
    run.note(1, placement=[{"node": "n1", "gpu": "NVIDIA A40"}], compile=False, **layout)
    with closing(RecordWriter(run.path, attempt=1)) as writer:
        for step in range(1, records + 1):
            times = {"train_s": 9.0 + 10 * step * seconds, "data_s": 4.0 + 10 * step * waited}
            writer.write(step=10 * step, images=0, loss=1.0, **times)
        writer.event("done", step=10 * records)
    return run


def test_finished_runs_are_compared_with_their_forecasts(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path / "logs"))
    (folder / "a40.json").write_text(planted())
    predicted = asked(capsys, "train.compile=false", "train.global_batch=64")[0]["value"]
    for number, ratio in enumerate((1.1, 1.2, 1.3)):
        finished_run(tmp_path / "logs", number, seconds=ratio * predicted, waited=0.02 * predicted)
    finished_run(tmp_path / "logs", 8, seconds=9.0, records=3)
    finished_run(tmp_path / "logs", 7, seconds=9.0, waited=0.6)  # for a slow loader
    finished_run(tmp_path / "logs", 6, seconds=0.0)
    damaged = finished_run(tmp_path / "logs", 5, seconds=9.0)
    damaged.note(1, placement=[])
    with pytest.raises(ConfigError, match="3 finished runs of a DiT"):
        fit_runs(tmp_path / "logs")
    finished_run(tmp_path / "logs", 9, seconds=1.2 * predicted)
    assert measurement.main(["--fit", str(tmp_path / "logs")]) == 0
    assert "4 runs took 1.19" in capsys.readouterr().out
    find_fit.cache_clear()
    fitted = asked(capsys, "train.compile=false", "train.global_batch=64")[0]
    assert fitted["value"] == pytest.approx(1.198 * predicted, rel=1e-3)
    assert fitted["source"] == "card, fitted on 4 runs"


def test_a_device_without_a_data_sheet_has_a_file_of_its_own() -> None:
    assert card_key("NVIDIA A100-SXM4-80GB") == "a100-80gb-sxm"
    assert card_key("AMD EPYC 7763 64-Core") == "amd-epyc-7763-64-core"
