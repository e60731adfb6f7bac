"""Noise samples at saved checkpoints are unbiased, and equal after a kill and on any ranks."""

import pytest
import torch

from configs.errors import ConfigError
from configs.load import resolve
from configs.schema import NoiseRun
from runs.folder import RunFolder
from tests.real_runs import DIGITS, TINY, events, opened, torchrun
from train.data.catalog import open_source
from train.data.source import training_split
from train.diffusion.objective import DiffusionObjective
from train.diffusion.timesteps import Bins
from train.engine.attempt import run_attempt
from train.engine.distributed import process_group, read_ranks
from train.gradient_noise.offline import carry_out as measure
from train.gradient_noise.samples import NoiseSample, OfflineNoise
from train.pretrain import run as pretrain

pytestmark = [pytest.mark.xdist_group("gns offline"), pytest.mark.usefixtures("one_thread")]

FEW = ("bins=2", "batch=4", "count=4", "samples=3")


@pytest.fixture(scope="module")
def run() -> RunFolder:
    """A run on digits with three checkpoints."""
    found = opened(DIGITS, [*TINY, "train.steps=6", "checkpoint.every=2", "checkpoint.keep=3"])
    assert run_attempt(found, pretrain.carry_out, number=1) == 0
    return found


def recorded(folder: RunFolder) -> list[dict]:
    return [record["gns_sample"] for record in folder.records() if "gns_sample" in record]


@pytest.fixture(scope="module")
def measured(run: RunFolder) -> RunFolder:
    """A measurement of two of the checkpoints, on one rank."""
    found = opened(run.path, ["steps=[4, 2]", *FEW], kind="gns")
    assert run_attempt(found, measure, number=1) == 0
    return found


def test_every_checkpoint_bin_and_repetition_is_a_sample(measured: RunFolder) -> None:
    samples = recorded(measured)
    assert [(s["checkpoint"], s.get("bin"), s["repeat"]) for s in samples] == [
        (step, k, repeat) for step in (2, 4) for k in (None, 0, 1) for repeat in range(3)
    ]
    assert sum(s["weight"] for s in samples if s.get("bin") is not None) == pytest.approx(6)
    assert all(sample["seconds"] > 0 for sample in samples)
    assert events(measured)[-1] == "done"


def test_ranks_share_the_microbatches_and_a_kill_loses_one_sample_at_most(
    run: RunFolder, measured: RunFolder
) -> None:
    other = opened(run.path, [*FEW, "steps=[2, 4]"], kind="gns")
    # The records of an attempt that was killed while it wrote its fifth sample.
    lines = measured.metrics_file.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"gns_sample"' in line][:5]
    other.metrics_file.write_text("".join(kept)[:-20])
    torchrun(other, ranks=2)
    started = next(record for record in other.records() if record.get("event") == "started")
    assert started["step"] == 4
    alone, shared = recorded(measured), recorded(other)
    assert len(shared) == len(alone)
    for a, b in zip(alone, shared, strict=True):
        assert (a["small"], a["big"]) == pytest.approx((b["small"], b["big"]), rel=1e-5)


def noise_config(**keys: object) -> NoiseRun:
    return resolve({"kind": "gns", **keys}, source="test")


def offline(run: RunFolder, **keys: object) -> OfflineNoise:
    return OfflineNoise(noise_config(run=str(run.path), **keys), read_ranks())


def test_a_sample_equals_the_norms_of_its_microbatches_gradients(run: RunFolder) -> None:
    sample = NoiseSample(step=6, k=1, weight=0.5, repeat=1)
    with process_group(read_ranks()):
        noise = offline(run, steps=[6], batch=4, count=3, bins=2, samples=2)
        found = noise.measure(sample)
    objective = DiffusionObjective(noise.config, torch.device("cpu"))
    parameters = list(noise.network.parameters())
    each = []
    for turn in range(3):
        batch = noise.microbatch(sample, turn)
        assert bool((batch.t >= 0.5).all())
        loss = objective.losses(noise.network, batch.image, batch.noise, batch.t, batch.label)
        gradients = torch.autograd.grad(loss.mean(), parameters)
        each.append(torch.cat([g.flatten() for g in gradients]).double())
    gradient = torch.stack(each)
    assert found["small"] == pytest.approx(float(gradient.square().sum(1).mean()), rel=1e-5)
    assert found["big"] == pytest.approx(float(gradient.mean(0).square().sum()), rel=1e-5)


def test_fault_small_batches_do_not_have_their_nominal_size(run: RunFolder) -> None:
    """Study C's small batches of nominally 100 images held 46.5 on average, of varying sizes."""
    noise = offline(run, batch=10, bins=10)
    edges = torch.from_numpy(Bins(count=10).edges[1:-1])
    for k in range(10):
        for turn in range(4):
            batch = noise.microbatch(NoiseSample(step=2, k=k, weight=0.1, repeat=0), turn)
            assert len(batch.t) == len(batch.image) == 10
            assert torch.bucketize(batch.t.double(), edges, right=True).tolist() == [k] * 10


def test_fault_the_share_of_data_does_not_enter_the_estimate(run: RunFolder) -> None:
    """Study C varied the share for a "true gradient" that its estimate never used.

    Here the images are drawn from the share: with one image there is no noise between images.
    """
    sample, seen = NoiseSample(step=2, k=None, weight=1.0, repeat=0), []
    for share in (1e-9, 0.02, 1.0):
        noise = offline(run, batch=64, count=8, share=share)
        images = torch.cat([noise.microbatch(sample, turn).image for turn in range(8)])
        seen.append({image.numpy().tobytes() for image in images})
    size = len(training_split(open_source(noise.config.data), noise.config.data))
    assert [len(found) for found in seen[:2]] == [1, round(0.02 * size)]
    assert len(seen[2]) > 300
    assert seen[0] < seen[1]


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({}, "run must be set"),
        ({"run": "a", "sampler": "stratified"}, "sampler: removed"),
        ({"run": "a", "count": 1}, "count"),
    ],
)
def test_impossible_measurements_are_refused(keys: dict, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        noise_config(**keys)


def test_a_step_that_was_not_saved_is_refused(run: RunFolder) -> None:
    config = noise_config(run=str(run.path), steps=[5])
    ranks = read_ranks()
    with process_group(ranks), pytest.raises(ConfigError, match="there are 2, 4, 6"):
        OfflineNoise(config, ranks).samples()
