"""Differences between two runs, and those that can have changed clock or loss."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.measure.arms import Arm
from analysis.measure.differences import causes, differences
from analysis.measure.loss import Compared, loss_contrast
from analysis.measure.loss_curve import why_unlike
from analysis.measure.rate import measure_rate, measure_rates
from analysis.measure.speed import speed_contrast, why_not_comparable
from analysis.measure.work import why_other_steps
from analysis.observations import attributed, is_repeat, seed_of
from analysis.study.compare import arms_of, compare_all
from tests.analysis.foreign_logs import log_of


def test_the_engine_can_have_changed_clock_and_loss():
    ours, theirs = (
        log_of({"elapsed_s": range(9)}, facts={"engine": name})
        for name in ("embedded", "aitoolkit")
    )
    found = differences(ours, theirs)
    assert "engine: embedded -> aitoolkit" in map(str, found)
    for of in ("clock", "loss"):
        assert "engine" in [each.name for each in causes(found, of=of)]


def test_flipped_images_make_the_training_loss_another_one_and_not_the_validation_loss():
    a, b = (of_script(kind="pretrain", **{"data.flip": flip}) for flip in (False, True))
    assert "(data.flip: false -> true)" in why_unlike(a, b, "loss")
    assert why_unlike(a, b, "validation_loss") is None


def test_a_tuned_micro_batch_is_a_difference_and_one_that_follows_from_the_config_is_not():
    for asked, expected in (("auto", ["micro_batch"]), (None, [])):
        a, b = (
            replace(of_script(kind="pretrain", **{"train.micro_batch": asked}), facts=facts)
            for facts in ({"micro_batch": 64}, {"micro_batch": 16})
        )
        assert [item.name for item in causes(differences(a, b), of="clock")] == expected


def test_training_losses_of_two_engines_are_not_of_one_quantity():
    ours, theirs = (
        replace(of_script(kind="finetune", engine="auto"), facts={"engine": name})
        for name in ("embedded", "aitoolkit")
    )
    why = "their loss is of another objective (engine: embedded -> aitoolkit)"
    assert why_unlike(ours, theirs, "loss") == why
    assert why_unlike(ours, theirs, "held_out_loss") is None


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ({"kind": "pretrain"}, "model.value_residual"),  # which there is no more
        ({"kind": "pretrain"}, "my_lr_scale"),
        ({}, "lr"),  # of another trainer
    ],
)
def test_a_key_that_the_schema_lacks_can_have_changed_clock_and_loss(kind, key):
    a, b = (
        replace(log_of({"elapsed_s": range(9)}), config={**kind, key: value}) for value in (1, 2)
    )
    for of in ("clock", "loss"):
        assert [each.name for each in causes(differences(a, b), of=of)] == [key]


@pytest.mark.parametrize("name", ["commit", "versions", "images_in_set"])
def test_code_versions_and_images_can_have_changed_the_loss(name):
    values = {"commit": "ab", "versions": {"torch": "2"}, "images_in_set": 100}
    a, b = (
        replace(log_of({"elapsed_s": range(9)}, facts=facts), config={"kind": "pretrain"})
        for facts in (values, values | {name: {"torch": "3"} if name == "versions" else "7"})
    )
    assert len(causes(differences(a, b), of="loss")) == 1
    assert (why_unlike(a, b, "loss") is not None) == (name == "images_in_set")


def of_script(loss=1.0, **config):
    """Return a log without images; the config is that of a script, or of our own `kind`."""
    n = np.arange(1, 201)
    noise = np.random.default_rng(1).standard_normal(200)
    values = {"elapsed_s": n * 0.5, "loss": loss * (1 + 9 / n) * (1 + 0.01 * noise)}
    facts = {"ranks": config.pop("ranks", 1)}
    return replace(log_of(values, facts=facts), config={"kind": "command", **config})


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("params.batch_size", (64, 128)),
        ("params.nproc_per_node", (1, 4)),
        ("ranks", (1, 4)),
    ],
)
def test_steps_that_may_be_of_other_images_are_compared_neither_in_speed_nor_in_loss(key, values):
    a, b = (of_script(**{key: value}) for value in values)
    why = f"({key}: {values[0]} -> {values[1]}), and no images are recorded"
    assert loss_contrast([a], [b], Compared()).why.endswith(why)
    assert why_not_comparable(
        *(Arm(runs=(measure_rate(log, clock="wall"),)) for log in (a, b))
    ).endswith(why)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("params.eval_batch_size", (64, 128)),
        ("params.num_workers", (0, 4)),
        ("params.data_dir", ("/home/anna/in1k", "/scratch/bob/in1k")),
    ],
)
def test_other_keys_of_scripts_leave_steps_and_losses_comparable(key, values):
    a, b = (of_script(**{key: value}) for value in values)
    assert loss_contrast([a], [b], Compared()).mean is not None
    assert (
        why_not_comparable(*(Arm(runs=(measure_rate(log, clock="wall"),)) for log in (a, b)))
        is None
    )


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("params.prediction_type", ("epsilon", "v_prediction")),
        ("params.dataset", ("imagenet", "coco")),
        ("params.epochs", (10, 20)),
    ],
)
def test_losses_of_scripts_that_may_measure_something_else_are_not_compared(key, values):
    a, b = (of_script(**{key: value}) for value in values)
    found = loss_contrast([a], [b], Compared())
    assert found.is_refused
    assert found.why.endswith(f"({key}: {values[0]} -> {values[1]})")


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("params.eval_split", ("val", "test")),
        ("params.limit_val_batches", (1, 0.1)),
        ("params.eval_on_train", (False, True)),
        ("params.guidance_scale", (1, 4)),
    ],
)
def test_evaluations_of_scripts_that_may_be_of_something_else_are_not_compared(key, values):
    a, b = (of_script(**{key: value}) for value in values)
    assert why_unlike(a, b, "loss") is None
    assert (why_unlike(a, b, "val/loss") is None) == ("guidance" in key)
    assert f"may be measured otherwise ({key}" in why_unlike(a, b, "val/fid")


def test_devices_in_a_column_that_stays_are_devices():
    a, b = (
        replace(log, values=log.values | {"world_size": np.full(len(log), count)}, config=None)
        for log, count in ((of_script(), 1.0), (of_script(), 4.0))
    )
    assert why_other_steps(a, b).endswith("on more devices (world_size: 1 -> 4)")


def test_a_range_that_one_run_cuts_short_supports_no_claim():
    base, arm = (
        [of_script(loss * (1 + 1e-3 * seed), **{"params.seed": seed, "params.lr": loss})
         for seed in range(3)]
        for loss in (1.0, 0.8)
    )  # fmt: skip
    assert loss_contrast(base, arm, Compared()).is_claim
    rows = {name: getattr(base[0], name)[:120] for name in ("step", "attempt", "line")}
    values = {name: column[:120] for name, column in base[0].values.items()}
    failed = replace(base[0], values=values, **rows)
    found = loss_contrast([failed, *base[1:]], arm, Compared())
    assert not found.is_claim
    assert found.remarks[-2:] == ("up to step 120, which all have", "log ends before others")


def test_a_score_at_the_end_of_each_is_compared_though_one_trained_for_longer():
    def arm(epochs, score):
        runs = [of_script(**{"params.seed": seed, "params.epochs": epochs}) for seed in (1, 2, 3)]
        return [
            replace(run, evaluations=({"step": 10 * epochs, "val_acc": score + 0.1 * seed},))
            for seed, run in enumerate(runs)
        ]

    found = loss_contrast(arm(10, 70), arm(20, 77), Compared(of="val_acc"))
    assert found.is_claim
    assert found.mean.ratio().value == pytest.approx(1.1, abs=0.005)
    assert found.remarks[0].startswith("at the end of each")


def test_steps_that_are_other_shares_of_an_epoch_are_not_compared():
    a, b = (
        replace(log, values=log.values | {"epoch": np.ceil(log.step / length)})
        for log, length in ((of_script(), 40), (of_script(), 10))
    )
    found = loss_contrast([a], [b], Compared())
    assert found.why == "steps of which 40 and 10 make an epoch, and no images are recorded"


def test_seeds_that_a_script_ignores_are_one():
    runs = [of_script(**{"params.seed": seed}) for seed in range(3)]
    other = [
        replace(log, values=log.values | {"loss": log.column("loss") * 1.1 * (1 + 1e-4 * seed)})
        for seed, log in enumerate(runs)
    ]
    found = loss_contrast(runs, other, Compared())
    assert not found.is_claim
    assert "log and 2 more have the losses of one seed" in found.remarks


def test_seeds_that_share_their_data_are_several():
    """The noise of a record is common to 95 %, as with one order of data."""
    runs = [of_script(loss=1 + 0.002 * seed, **{"params.seed": seed}) for seed in (1, 2, 3)]
    found = loss_contrast(runs, runs, Compared())
    assert not any("one seed" in remark for remark in found.remarks)


def test_what_an_unknown_key_changes_is_no_claim():
    arms = [
        [of_script(loss=(1 + 0.002 * seed) * (0.8 if value else 1),
                   **{"params.seed": seed, "params.tau": value}) for seed in (1, 2, 3)]
        for value in (0, 1)
    ]  # fmt: skip
    found = loss_contrast(*arms, Compared())
    assert not found.is_claim
    assert "what params.tau changes is not known" in found.remarks


@pytest.mark.parametrize(
    ("keys", "equal"),
    [
        (("batch_size", "accumulation_steps"), ((8, 4), (16, 2))),
        (("global_batch_size", "micro_batch_size"), ((256, 8), (256, 16))),
        (("batch_size", "num_gpus"), ((64, 1), (16, 4))),
    ],
)
def test_a_batch_is_the_product_of_its_parts_or_the_key_of_the_whole(keys, equal):
    a, b = (
        of_script(**{f"params.{key}": value for key, value in zip(keys, values, strict=True)})
        for values in equal
    )
    assert why_other_steps(a, b) is None
    other = replace(b, config=b.config | {f"params.{keys[0]}": 512})
    assert why_other_steps(a, other).startswith("steps of another batch")


@pytest.mark.parametrize(("key", "values"), [("params.batch_size", (64, 128)), ("ranks", (1, 4))])
def test_as_many_images_a_step_of_another_batch_or_on_more_devices_are_not_believed(key, values):
    a, b = (
        replace(log, values=log.values | {"images": 64.0 * log.step})
        for log in (of_script(**{key: value}) for value in values)
    )
    arms = [Arm(runs=(measure_rate(log, clock="wall"),)) for log in (a, b)]
    assert why_not_comparable(*arms).startswith("as many images a step")
    assert loss_contrast([a], [b], Compared(by="images")).is_refused


def test_another_text_of_a_script_supports_no_claim():
    arms = [[of_script(script_digest=text, **{"params.seed": seed}) for seed in (1, 2, 3)]
            for text in "ab"]  # fmt: skip
    found = speed_contrast(*(Arm(runs=tuple(measure_rates(arm))) for arm in arms))
    assert not found.is_claim
    assert "what script_digest changes is not known" in found.remarks


def test_another_length_matters_if_the_learning_rate_falls_towards_the_end():
    lengths = [{"train.steps": steps, "train.global_batch": 64} for steps in (200, 400)]
    constant = [of_script(kind="pretrain", **one) for one in lengths]
    assert not causes(differences(*constant), of="loss")
    assert loss_contrast(constant[:1], constant[1:], Compared()).mean is not None
    falling = [of_script(kind="pretrain", **one, **{"optimizer.decay": 1.0}) for one in lengths]
    found = loss_contrast(falling[:1], falling[1:], Compared())
    assert found.why == "their schedules end at other steps (train.steps: 200 -> 400)"


def test_scores_of_a_script_have_a_row_and_ours_have_none():
    def scored(**config):
        runs = [of_script(**config, **{"params.seed": n}) for n in (1, 2, 3)]
        return [replace(run, evaluations=({"step": 200, "val_acc": 0.8},)) for run in runs]

    for kind, expected in (("command", True), ("pretrain", False)):
        logs = [*scored(kind=kind), *scored(kind=kind, **{"optimizer.lr": 1, "params.lr": 1})]
        rows = compare_all(arms_of(logs), by="step", margin=0.01)
        assert ("val acc" in {row["quantity"] for row in rows}) == expected


def test_another_folder_of_data_is_another_data_set_unless_its_name_is_the_same():
    paths = ("/data/imagenet", "/data/coco", "/scratch/imagenet")
    a, b, moved = (of_script(kind="pretrain", **{"data.path": path}) for path in paths)
    assert "other data (data.path: /data/imagenet" in why_unlike(a, b, "loss")
    assert why_unlike(a, moved, "loss") is None


def test_the_seeds_of_a_script_make_repeats_and_its_threads_follow_from_the_ranks():
    a, b = (of_script(**{"params.lr": 1, "params.seed": seed}) for seed in (1, 2))
    assert (is_repeat(a, b), seed_of(a)) == (True, 1)
    one, four = (
        replace(log, facts={"ranks": count, "placement": [{"threads": 8}] * count})
        for log, count in ((a, 1), (a, 4))
    )
    assert [item.name for item in causes(differences(one, four), of="clock")] == ["ranks"]


def test_seeds_and_names_of_runs_of_other_trainers_are_no_part_of_a_recipe():
    """As Hugging Face's Trainer writes them."""
    a, b, other, named = (
        replace(
            log_of({"elapsed_s": range(9)}, name=name),
            config={
                "lr": lr,
                "random_seed": seed,
                "data_seed": seed,
                "output_dir": f"out/{seed}",
                "run_name": f"base-s{seed}" if name != "d" else "other-s4",
                "start_time": f"2026-01-0{seed}",
            },
        )
        for name, seed, lr in (("a", 1, 1e-3), ("b", 2, 1e-3), ("c", 3, 2e-3), ("d", 4, 1e-3))
    )
    assert is_repeat(a, b)
    assert not is_repeat(a, other)
    assert "run_name" in attributed([a], [named], of="loss")
    assert not is_repeat(a, named)
    assert seed_of(a) == (1, 1)
    assert attributed([a], [other], of="loss") == "only this differs: lr: 0.001 -> 0.002"
