"""FID during training is the same for any number of ranks, and names what it was computed with."""

from pathlib import Path
from typing import Any

import pytest

from configs.errors import ConfigError
from configs.load import load
from tests.real_runs import DIGITS, TINY, opened, trained
from tests.train.evaluate.test_fid import load_net, save_net
from train.engine.attempt import run_attempt
from train.pretrain.run import carry_out

KEYS = [*TINY, "train.steps=6", "evaluate.fid.every=3", "evaluate.fid.num=230"]


def evaluations(*more: str, ranks: int = 1) -> list[dict[str, Any]]:
    run = trained([*KEYS, *more], ranks=ranks)
    *_, last = run.records()
    assert last["eval_s"] > 0
    return [record for record in run.records() if "fid" in record]


def test_one_rank_two_ranks_and_a_sharded_network_have_the_same_fid() -> None:
    one = evaluations()
    two = evaluations(ranks=2)
    sharded = evaluations("layout.shard=2", ranks=2)
    assert [(record["step"], record["images"]) for record in one] == [(3, 48), (6, 96)]
    for name in ("fid", "fid_inf", "kid"):
        found = [record[name] for record in one]
        assert found[0] != found[1]
        for other in (two, sharded):
            assert [record[name] for record in other] == pytest.approx(found, rel=1e-5)
    assert len(one[0]["fid_blocks"]) == 20
    facts = one[0]["fid_facts"]
    assert (facts["weights"], facts["sampler"], facts["steps"]) == ("ema", "euler", 2)
    assert (facts["guidance"], facts["seed"], facts["reference_images"]) == (1.5, 0, 1348)
    assert facts["features"].startswith("classifier of held-out digits")


def test_latents_are_decoded_and_compared_with_their_images(
    tmp_path: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("train.evaluate.fid_features._inception", load_net)
    net = save_net(tmp_path / "net.pt")
    data = {"source": "latents", "path": stored / "store", "size": 8, "channels": 4, "classes": 3}
    keys = [f"data.{name}={value}" for name, value in data.items()]
    keys += ["data.held_out=0.0", "train.global_batch=4", "evaluate.fid.num=70"]
    run = opened(DIGITS, [*KEYS, *keys, f"evaluate.fid.features={net}"])
    assert run_attempt(run, carry_out, number=1) == 0
    (_, last) = (record for record in run.records() if "fid" in record)
    assert last["fid_samples"] == 70
    assert last["fid_inf"] > 0
    assert last["fid_facts"]["reference_images"] == 15


def test_features_must_be_named_unless_digits_are_held_out() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.fid\.every needs evaluate\.fid\.features"):
        load(DIGITS, ["evaluate.fid.every=3", "data.held_out=0.0"])
