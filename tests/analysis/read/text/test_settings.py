"""The settings that a text prints above its records are the config of its runs."""

from datetime import UTC, datetime

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.read.find import read_logs
from analysis.read.options import parse_options, reading_with
from tests.analysis.foreign_logs import logs_of

STAMP = "2024-03-01 10:00:00,123"


def records(*, begin: int = 1, end: int = 40, day: int = 1) -> str:
    return "".join(
        f"2024-03-{day:02d} 11:{n // 60:02d}:{n % 60:02d} step {n} loss {5 / n:.4f}\n"
        for n in range(begin, end)
    )


def config_of(tmp_path, settings: str) -> dict:
    [log] = logs_of(tmp_path / "x.log", f"{settings}\n{records()}")
    assert len(log) == 39
    return dict(log.config or {})


@pytest.mark.parametrize(
    "text",
    [
        "Namespace(lr=0.1, batch_size=64, opt='adam', amp=True, resume=None)",
        f"{STAMP} - INFO - root - Namespace(lr=0.1, batch_size=64, opt='adam', amp=True, "
        "resume=None)",
        "{'lr': 0.1, 'batch_size': 64, 'opt': 'adam', 'amp': True, 'resume': None}",
        "TrainConfig(lr=0.1, batch_size=64, opt='adam', amp=True, resume=None)",
        '{\n  "lr": 0.1,\n  "batch_size": 64,\n  "opt": "adam",\n  "amp": true,\n'
        '  "resume": null\n}',
        "lr: 0.1\nbatch_size: 64\nopt: adam\namp: true\nresume: null",
        "lr = 0.1\nbatch_size = 64\nopt = adam\namp = True\nresume = None",
        "  lr: 0.1 (cosine)\n  batch_size: 64\n  opt: adam\n  amp: true\n  resume: null",
        "".join(
            f"{STAMP} | INFO     | a.b:show:101 -   {pair}\n"
            for pair in ("lr: 0.1", "batch_size: 64", "opt: adam", "amp: True", "resume: None")
        ),
        "python train.py --lr 0.1 --batch-size=64 --opt adam --amp --resume None",
        "lr=0.1 batch_size=64 opt=adam amp=True resume=None",
    ],
)
def test_settings_are_read_in_any_form(text, tmp_path):
    expected = {"lr": 0.1, "batch_size": 64, "opt": "adam", "amp": True, "resume": None}
    assert config_of(tmp_path, text) == expected


def test_groups_are_in_the_names_of_their_settings(tmp_path):
    wanted = {"model.width": 8, "data.batch_size": 4, "val.batch_size": 2, "seed": 1}
    yaml = "Settings:\n  model:\n    width: 8\n  data:\n    batch_size: 4\n  val:\n"
    assert config_of(tmp_path, f"{yaml}    batch_size: 2\nseed: 1") == wanted
    line = "{'model': {'width': 8}, 'data': {'batch_size': 4}, 'val': {'batch_size': 2}, 'seed': 1}"
    assert config_of(tmp_path, line) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "Note: this is no setting\nUsing device: cuda",
        "import torch\nlr = 0.1\nbatch_size = 64\nseed = 3",
        "  (conv1): Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), bias=False)",
        "train: loss=0.5, val_loss=0.7, val_acc=0.9",
    ],
)
def test_what_is_no_block_of_settings_is_none(text, tmp_path):
    assert config_of(tmp_path, text) == {}


def test_a_name_with_two_values_has_none(tmp_path):
    text = "Namespace(lr=0.1, batch_size=64, seed=3)\nNamespace(lr=0.1, batch_size=32, seed=3)"
    assert config_of(tmp_path, text) == {"lr": 0.1, "seed": 3}


def test_a_later_run_of_a_file_has_what_is_printed_above_it(tmp_path):
    first, second = "lr: 0.1\nfold: 1\nseed: 3\n", "fold: 2\nlr: 0.1\nwidth: 8\n"
    text = f"{first}{records()}{second}{records(day=2)}"
    configs = [log.config for log in logs_of(tmp_path / "x.log", text)]
    assert configs == [
        {"lr": 0.1, "fold": 1, "seed": 3},
        {"lr": 0.1, "fold": 2, "seed": 3, "width": 8},
    ]


def test_a_setting_that_an_attempt_changes_has_no_value(tmp_path):
    first, second = "lr: 0.1\nbatch_size: 64\nseed: 3\n", "lr: 0.1\nbatch_size: 32\nseed: 3\n"
    text = f"{first}{records(end=30)}{second}{records(begin=20, day=2)}"
    [log] = logs_of(tmp_path / "x.log", text)
    assert (log.attempts, log.config, log.global_batch) == (2, {"lr": 0.1, "seed": 3}, None)


@pytest.mark.parametrize(
    ("settings", "batch"),
    [
        ("batch_size: 64\nlr: 0.1\ngpus: 1", 64),
        ("Batch size: 64\nlr: 0.1\neval_batch_size: 8", 64),
        ("bs=64 lr=0.1 accum_iter=1", 64),
        ("batch_size: 64\nlr: 0.1\nworld_size: 4", None),
        ("batch_size: 64\nlr: 0.1\ngradient_accumulation_steps: 2", None),
        ("batch_size: 64\nlr: 0.1\nlocal_rank: 1", None),
        ("Training on 8 GPUs\nbatch_size: 64\nlr: 0.1\nseed: 3", None),
        ("[rank1]: start\nbatch_size: 64\nlr: 0.1\nseed: 3", None),
        ("per_device_train_batch_size: 64\nlr: 0.1\nseed: 3", None),
        ("eval_batch_size: 64\nlr: 0.1\nseed: 3", None),
        ("batch_size: 64\nglobal_batch_size: 512\nworld_size: 8", 512),
        ("batch_size: 64\ndata.batch_size: 32\nlr: 0.1", None),
    ],
)
def test_a_batch_counts_images_unless_it_may_be_a_part(settings, batch, tmp_path):
    [log] = logs_of(tmp_path / "x.log", f"{settings}\n{records()}")
    assert log.global_batch == batch
    assert log.last("images") == (None if batch is None else 39 * batch)


def test_a_batch_of_the_user_replaces_the_printed_one(tmp_path):
    (tmp_path / "x.log").write_text(f"batch_size: 64\nlr: 0.1\nseed: 3\n{records()}")
    with reading_with(parse_options(pattern=None, columns=None, facts=["batch=256"])):
        [log] = read_logs([str(tmp_path / "x.log")])
    assert (log.global_batch, log.last("images")) == (256, 39 * 256)


def test_a_batch_that_may_be_a_part_is_told(tmp_path):
    [log] = logs_of(tmp_path / "x.log", f"batch_size: 64\nlr: 0.1\ngpus: 4\n{records()}")
    assert any("a part of the whole: --set batch=N" in remark for remark in log.remarks)


def compared(tmp_path, capsys, command: str, **settings: str) -> str:
    paths = []
    for number, (name, text) in enumerate(settings.items()):
        noise = np.random.default_rng(number).normal(1, 0.02, 60)
        seconds = 1_709_280_000 + np.cumsum(noise * (3.0 if name.startswith("slow") else 2.0))
        moments = [datetime.fromtimestamp(one, UTC) for one in seconds.tolist()]
        rows = [
            f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d} step {n} loss {9 / n:.4f}"
            for n, moment in enumerate(moments, start=1)
        ]
        path = tmp_path / name / "train.log"
        path.parent.mkdir()
        path.write_text("\n".join([text, *rows]))
        paths.append(str(path))
    assert main([command, *paths]) == 0
    return capsys.readouterr().out


def test_steps_of_another_printed_batch_are_not_compared(tmp_path, capsys):
    text = "Namespace(lr=0.1, batch_size={}, gpus=4)"
    found = compared(tmp_path, capsys, "speed", a=text.format(32), b=text.format(64))
    assert "steps of another batch (batch_size: 32 -> 64), and no images are recorded" in found


def test_a_printed_batch_makes_a_ratio_one_of_images(tmp_path, capsys):
    text = "Namespace(lr=0.1, batch_size={}, seed=3)"
    found = compared(tmp_path, capsys, "speed", a=text.format(32), b=text.format(64))
    assert (
        "2.01x as fast as a/train.log, 1.99 to 2.02 (these two runs, paired by step, in im" in found
    )


def test_texts_with_seeds_of_their_own_are_repeats(tmp_path, capsys):
    text = "Namespace(lr=0.1, width={}, seed={})"
    logs = {f"fast{n}": text.format(8, n) for n in range(3)}
    logs |= {f"slow{n}": text.format(16, n) for n in range(3)}
    found = compared(tmp_path, capsys, "compare", **logs)
    assert "slow0/train.log (+2 alike) is 0.67x as fast as fast0/train.log (+2 alike)" in found
    assert "3 seeds a side" in found


@pytest.mark.parametrize("seed", ["seed=3", "depth=3"])
def test_texts_of_one_seed_may_be_of_two_arms(seed, tmp_path, capsys):
    text = f"Namespace(lr=0.1, width=8, {seed})"
    found = compared(tmp_path, capsys, "compare", fast=text, slow=text)
    assert "alike" not in found
    assert "0.67x as fast" in found
