"""An MLPerf log is read on one axis, whatever its entries call the place of the run."""

import json

import pytest

from analysis.measure.rate import measure_rate
from analysis.read.find import read_logs
from configs.errors import Unreadable

START_MS, BATCH, STEPS_PER_S = 1_700_000_000_000, 32, 4.0
EPOCH = 6400


def entry(key, value=None, *, seconds, **metadata) -> str:
    time_ms = START_MS + int(1000 * seconds)
    told = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key}
    return "0: :::MLLOG " + json.dumps(
        told | {"value": value, "metadata": metadata | {"lineno": 9}}
    )


def log_of(path, *, place, throughput: bool, eval_s: float = 30.0, blocks: int = 40):
    """Blocks of 100 steps, an evaluation after every fourth; `place` names a block's place."""
    lines = [entry("global_batch_size", BATCH, seconds=0), entry("run_start", seconds=1)]
    lines += [':::SYSJSON {"number_of_nodes":"2","accelerators_per_node":"8"}']
    now = 1.0
    for block in range(1, blocks + 1):
        now += 100 / STEPS_PER_S
        samples = 100 * block * BATCH
        rate = {"throughput": BATCH * STEPS_PER_S} if throughput else {"train_loss": 9 / block}
        lines.append(entry("block_start", seconds=now, first_epoch_num=block, epoch_count=4))
        lines.append(entry("tracked_stats", rate, seconds=now, **place(100 * block)))
        if block % 4 == 0:
            lines.append(entry("eval_start", seconds=now, samples_count=samples))
            now += eval_s
            lines.append(entry("eval_accuracy", 1 - 1 / block, seconds=now, samples_count=samples))
            lines.append(entry("eval_stop", seconds=now, samples_count=samples))
    lines.append(entry("run_stop", seconds=now, status="success"))
    path.write_text("\n".join(lines))
    [log] = read_logs([str(path)])
    return log


@pytest.mark.parametrize("throughput", [True, False])
@pytest.mark.parametrize(
    "place",
    [
        lambda step: {"step": step},
        lambda step: {"step_num": step},
        lambda step: {"samples_count": step * BATCH},
        lambda step: {"step": step * BATCH},
    ],
    ids=["step", "step_num", "samples_count", "samples named step"],
)
def test_steps_samples_and_pauses_are_those_planted(place, throughput, tmp_path):
    log = log_of(tmp_path / "x", place=place, throughput=throughput)
    assert log.axis == "step"
    assert log.step.tolist() == list(range(100, 4100, 100))
    assert log.column("images").tolist() == [BATCH * step for step in log.step]
    assert log.column("eval_s")[-1] == pytest.approx(270)
    rate = measure_rate(log, clock="wall")
    assert rate.steps_per_s.value == pytest.approx(STEPS_PER_S, rel=0.005)
    assert rate.images_per_s == pytest.approx(BATCH * STEPS_PER_S, rel=0.005)
    assert log.attempts == 1
    assert log.facts["number_of_ranks"] == 16
    assert [one["step"] for one in log.evaluations] == list(range(400, 4400, 400))
    assert not any("falls" in remark for remark in log.remarks)


def test_a_step_of_another_size_than_the_throughput_says_is_a_unit(tmp_path):
    log = log_of(tmp_path / "x", place=lambda step: {"step": step // 100}, throughput=True)
    assert log.axis == "unit"
    assert "images" not in log.values
    assert any("does not say" in remark for remark in log.remarks)


def test_a_huge_epoch_is_no_epoch(tmp_path):
    log = log_of(
        tmp_path / "x", place=lambda step: {"epoch_num": step * BATCH * 2048}, throughput=False
    )
    assert log.axis == "unit"
    assert any("does not say" in remark for remark in log.remarks)


def test_tokens_named_step_are_no_steps(tmp_path):
    """GPT-3 of NVIDIA: `step` counts tokens, a whole number of batches each."""
    log = log_of(tmp_path / "x", place=lambda step: {"step": step * BATCH * 2048}, throughput=False)
    rate = measure_rate(log, clock="wall")
    assert (log.axis, rate.steps_per_s, rate.images_per_s) == ("unit", None, None)


def test_two_metrics_of_one_name_are_two_evaluations(tmp_path):
    """Stable Diffusion: FID and CLIP are both `eval_accuracy`."""
    lines = [entry("global_batch_size", BATCH, seconds=0)]
    for n in range(1, 5):
        place = {"samples_count": 1000 * BATCH * n}
        lines.append(entry("loss", 1 / n, seconds=100 * n, **place))
        for metric, value in (("FID", 90 / n), ("CLIP", 0.1 * n)):
            lines.append(entry("eval_accuracy", value, seconds=100 * n, metric=metric, **place))
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert [one["eval_accuracy fid"] for one in log.evaluations[::2]] == [90, 45, 30, 22.5]
    assert [one["eval_accuracy clip"] for one in log.evaluations[1::2]] == pytest.approx(
        [0.1, 0.2, 0.3, 0.4]
    )
    assert not any("eval_accuracy" in one for one in (*log.evaluations, log.values))


def test_damaged_entries_are_not_read_as_lines_of_another_format(tmp_path):
    lines = [entry("tracked_stats", {"train_loss": 1.0}, seconds=n, step=n) for n in range(1, 30)]
    (tmp_path / "x").write_text("\n".join(line.replace("lineno", 'line"no') for line in lines))
    with pytest.raises(Unreadable, match="no run in it"):
        read_logs([str(tmp_path / "x")])


def test_entries_are_read_whatever_the_order_of_their_parts(tmp_path):
    lines = [
        f':::MLLOG {{"value": {{"train_loss": {3 / n}}}, "metadata": {{"step": {n}}}, '
        f'"key": "tracked_stats", "time_s": {1.6e9 + 2 * n}}}'
        for n in range(1, 30)
    ]
    (tmp_path / "x").write_text("\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert log.column("loss")[0] == 3
    rate = measure_rate(log, clock="wall")
    # Nothing confirms that its `step` counts steps.
    assert (rate.unit, rate.rate.value) == ("unit", pytest.approx(0.5, rel=0.02))
