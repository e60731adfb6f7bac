"""The detectors find injected faults and almost nothing in clean runs."""

import json
from dataclasses import replace

import numpy as np

from analysis.__main__ import main
from analysis.measure.detectors import detect
from analysis.read.run_folder import read_ours
from analysis.read.run_log import RunLog
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

KINDS = ("stall", "spike", "divergence", "rate drop", "nan")


def clean(folder, seed: int) -> RunLog:
    """Return a run with noise, some autocorrelation, warm-up, outliers and saves, by the seed."""
    rng = np.random.default_rng(seed)
    truth = SyntheticRun(
        seed=seed,
        intervals=int(rng.integers(80, 300)),
        cv=float(rng.uniform(0.005, 0.03)),
        rho=float(rng.uniform(0, 0.4)),
        warmup=float(rng.choice([0, 0.1])),
        outliers=float(rng.choice([0, 0.05])),
        save_every=int(rng.choice([0, 20])),
        loss_noise=float(rng.uniform(0.002, 0.03)),
    )
    return read_ours(RunFolder(generate_run(folder / f"clean{seed}", truth)))


def inject(log: RunLog, kind: str, rng: np.random.Generator) -> RunLog:
    """Return the run with one fault in its second half."""
    n = len(log)
    at = int(rng.integers(n // 2, n - 25))
    values = {name: column.copy() for name, column in log.values.items()}
    step_s = float(np.median(np.diff(values["train_s"])))
    if kind == "stall":
        values["train_s"][at:] += step_s * rng.uniform(10, 100)
        values["time"][at:] += values["train_s"][at] - log.values["train_s"][at]
    elif kind == "spike":
        values["loss"][at : at + int(rng.integers(1, 4))] *= rng.uniform(1.6, 10)
    elif kind == "divergence":
        values["loss"][at:] *= np.linspace(1.2, rng.uniform(2, 10), n - at)
    elif kind == "rate drop":
        more = np.cumsum(np.diff(values["train_s"], prepend=values["train_s"][0])[at:])
        values["train_s"][at:] += more * rng.uniform(0.1, 0.5)
        values["time"] = values["time"] + (values["train_s"] - log.values["train_s"])
    elif kind == "nan":
        return replace(
            log, events=({"event": "failed", "reason": "nan", "attempt": 1, "time": 0.0},)
        )
    return replace(log, values=values)


def scores(cases: int, folder) -> tuple[int, dict[str, tuple[float, float]]]:
    """Return false alarms among `cases` clean runs, and (precision, recall) by kind."""
    rng = np.random.default_rng(0)
    runs = [clean(folder, seed) for seed in range(cases)]
    alarms = sum(bool(detect(log)) for log in runs)
    results: list[tuple[str, set[str]]] = [
        (kind, {row["finding"] for row in detect(inject(log, kind, rng))})
        for kind in KINDS
        for log in runs
    ]
    table = {}
    for kind in KINDS:
        hits = sum(kind in found for injected, found in results if injected == kind)
        false = sum(kind in found for injected, found in results if injected != kind)
        table[kind] = (hits / max(1, hits + false), hits / cases)
    return alarms, table


def test_detectors_have_high_precision_and_recall_in_a_small_sample(tmp_path):
    alarms, table = scores(15, tmp_path)
    assert alarms <= 1
    assert all(precision >= 0.9 and recall >= 0.9 for precision, recall in table.values()), table


def test_a_finding_names_its_step_and_line_and_exits_1(tmp_path, capsys):
    run = generate_run(tmp_path / "a", SyntheticRun())
    lines = (run / "metrics.jsonl").read_text().splitlines()
    record = json.loads(lines[120])
    lines[120] = json.dumps(record | {"loss": record["loss"] * 5})
    (run / "metrics.jsonl").write_text("\n".join(lines))
    assert main(["runs", str(run), "--detect", "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["finding"], found["step"], found["line"]) == ("spike", record["step"], 121)


def test_a_nan_printed_in_another_trainers_log_is_found(tmp_path, capsys):
    lines = [f"iter {i}: loss {'nan' if i > 90 else 3.0}, time 100.0ms" for i in range(100)]
    (tmp_path / "x").write_text("\n".join(lines))
    assert main(["runs", str(tmp_path / "x"), "--detect", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["line"] == 92
