"""FID equals the closed form for every kind of reference, and its record names its inputs."""

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from PIL import Image
from torch import nn

from configs.errors import ConfigError
from runs.records import valid
from tests.real_runs import DIGITS, opened
from train.data.digits import Digits
from train.evaluate.fid import fid, main
from train.evaluate.fid_features import open_features, statistics
from train.evaluate.npz import Pixels

CPU = torch.device("cpu")


class Net(nn.Module):
    """Computes twelve features of an image."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.conv(x.float() / 64)).mean((2, 3))


def save_net(file: Path, *, seed: int = 0) -> Path:
    """Write a file that `load_net` reads."""
    torch.save(Net(seed).state_dict(), file)
    return file


def load_net(file: Path, device: torch.device) -> Net:
    net = Net()
    net.load_state_dict(torch.load(file))
    return net


@pytest.fixture
def net_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("train.evaluate.fid_features._inception", load_net)
    return save_net(tmp_path / "net.pt")


def images(seed: int, *, count: int = 200, shift: int = 0) -> Pixels:
    drawn = np.random.default_rng(seed).integers(0, 128, (count, 10, 10, 3))
    return (drawn + shift).astype(np.uint8)


def save(file: Path, pixels: Pixels) -> Path:
    np.savez(file, pixels)
    return file


def closed_form(one: Pixels, other: Pixels) -> float:
    """Return the distance by numpy's mean and covariance and scipy's matrix root."""
    with torch.no_grad():
        a, b = (
            Net()(torch.from_numpy(set_).permute(0, 3, 1, 2)).double().numpy()
            for set_ in (one, other)
        )
    s, t = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = scipy.linalg.sqrtm(s @ t).real
    return float(((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(s + t - 2 * root))


@pytest.mark.parametrize(("count", "shift"), [(200, 0), (150, 3), (200, 100)])
def test_the_distance_is_the_closed_form(
    tmp_path: Path, net_file: Path, count: int, shift: int
) -> None:
    one, other = images(0), images(1, count=count, shift=shift)
    files = save(tmp_path / "a.npz", one), save(tmp_path / "b.npz", other)
    result = fid(*files, features_file=net_file)
    assert result["fid_samples"] == 200
    assert result["fid"] == pytest.approx(closed_form(one, other), rel=1e-4)


def test_statistics_do_not_depend_on_the_batches(net_file: Path) -> None:
    features = open_features(net_file, device=CPU)
    whole = statistics([images(0)], features, name="whole")
    parts = statistics(np.array_split(images(0), 7), features, name="parts")
    assert whole.count == parts.count == 200
    np.testing.assert_allclose(parts.mu, whole.mu, rtol=1e-6)
    np.testing.assert_allclose(parts.sigma, whole.sigma, rtol=1e-4, atol=1e-12)


def test_a_folder_and_a_file_of_the_same_images_are_the_same_reference(
    tmp_path: Path, net_file: Path
) -> None:
    samples, other = save(tmp_path / "samples.npz", images(0)), images(1, count=60, shift=20)
    for number, image in enumerate(other):
        file = tmp_path / "folder" / f"class-{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    by_folder = fid(samples, tmp_path / "folder", features_file=net_file)
    by_file = fid(samples, save(tmp_path / "other.npz", other), features_file=net_file)
    assert by_folder["fid"] == pytest.approx(by_file["fid"], rel=1e-6)
    with pytest.raises(ConfigError, match="no images"):
        fid(samples, Path("jobs"), features_file=net_file)


def test_statistics_are_cached_beside_the_reference_until_it_changes(
    tmp_path: Path, net_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples, reference = save(tmp_path / "a.npz", images(0)), tmp_path / "b.npz"
    save(reference, images(1, shift=30))
    first = fid(samples, reference, features_file=net_file)
    (cache,) = tmp_path.glob("b.fid-*.npz")
    again = fid(samples, reference, features_file=net_file)
    assert str(cache) in capsys.readouterr().err
    assert again == first
    assert fid(samples, cache, features_file=net_file)["fid_inf"] == first["fid_inf"]
    save(reference, images(1, count=199, shift=90))
    assert fid(samples, reference, features_file=net_file)["fid"] > 2 * first["fid"]
    assert str(cache) not in capsys.readouterr().err
    other = save_net(tmp_path / "other.pt", seed=1)
    assert fid(samples, reference, features_file=other) != first
    assert len(list(tmp_path.glob("b.fid-*.npz"))) == 2
    with pytest.raises(ConfigError, match="statistics are of another feature network"):
        fid(samples, cache, features_file=other)


def test_statistics_of_an_unnamed_network_are_used_with_a_warning(
    tmp_path: Path, net_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = statistics([images(1)], open_features(net_file, device=CPU), name="reference")
    # Like ADM's reference batches: some of the images, and the statistics of all images.
    np.savez(tmp_path / "b.npz", images(5), mu=found.mu, sigma=found.sigma)
    result = fid(save(tmp_path / "a.npz", images(0)), tmp_path / "b.npz", features_file=net_file)
    assert result["fid"] == pytest.approx(closed_form(images(0), images(1)), rel=1e-4)
    assert "kid" not in result
    assert "does not say which network its statistics are of" in capsys.readouterr().err
    np.savez(tmp_path / "b.npz", mu=found.mu[:3], sigma=found.sigma[:3, :3])
    with pytest.raises(ConfigError, match="are of 3 features, --features has 12"):
        fid(tmp_path / "a.npz", tmp_path / "b.npz", features_file=net_file)


def save_inception(file: Path) -> Any:
    """Write random weights of the Inception, and return it."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    torch.save({}, file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureExtractorInceptionV3, "load_state_dict", lambda *_: None)
        net: Any = FeatureExtractorInceptionV3("x", ["2048"], feature_extractor_weights_path=file)
    torch.save(net.state_dict(), file)
    return net


def test_inception_weights_are_read_from_a_file(tmp_path: Path) -> None:
    net = save_inception(tmp_path / "inception.pth")
    features = open_features(tmp_path / "inception.pth", device=CPU)
    batch = torch.from_numpy(images(0, count=2)).permute(0, 3, 1, 2)
    with torch.no_grad():
        rows, (expected,) = features.network(batch), net(batch)
    assert rows.shape == (2, 2048)
    assert rows.std() > 0
    torch.testing.assert_close(rows, expected)
    torch.save({}, tmp_path / "none.pth")
    with pytest.raises(ConfigError, match="not Inception weights of torch-fidelity"):
        open_features(tmp_path / "none.pth", device=CPU)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("bomb-went-off"),)  # type: ignore[return-value]


def test_a_missing_or_foreign_feature_file_is_refused_and_not_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = r"https://github\.com/toshas/torch-fidelity/releases/.*compute nodes often lack"
    with pytest.raises(ConfigError, match=f"--features FILE is missing: .*{address}"):
        open_features(None, device=CPU)
    with pytest.raises(ConfigError, match=rf"nowhere\.pth: no such file; .*{address}"):
        open_features(tmp_path / "nowhere.pth", device=CPU)
    monkeypatch.chdir(tmp_path)
    content = io.BytesIO()
    torch.save({"weight": Bomb()}, content)
    for payload in (b"no network", pickle.dumps(Bomb(), protocol=2), content.getvalue()):
        (tmp_path / "net.pth").write_bytes(payload)
        with pytest.raises(ConfigError, match="not Inception weights of torch-fidelity"):
            open_features(tmp_path / "net.pth", device=CPU)
    assert not Path("bomb-went-off").exists()


def test_statistics_of_one_image_are_refused(net_file: Path) -> None:
    with pytest.raises(ConfigError, match="at least 2 images, found 1"):
        statistics([images(0, count=1)], open_features(net_file, device=CPU), name="x")


def test_a_distance_is_recorded_in_the_run_that_the_samples_come_from(
    tmp_path: Path,
    net_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = opened(DIGITS, [])
    source = Digits()
    grey = np.stack([source[index][0][0] for index in range(100)])
    pixels = np.round((grey + 1) * 127.5).astype(np.uint8)[..., None].repeat(3, axis=3)
    samples = save(tmp_path / "samples.npz", pixels[:50])
    metadata = {"run": str(run.path), "checkpoint": 40, "images": 5120, "weights": "ema"}
    (tmp_path / "samples.json").write_text(json.dumps(metadata | {"guidance": 1.5}))
    assert main([str(samples), str(run.path), "--features", str(net_file)]) == 0
    printed = capsys.readouterr()
    assert "of 50 samples" in printed.out
    assert "warning: FID of 50 samples is too high" in printed.err
    record, event = list(run.records())
    assert (record["step"], record["images"], record["fid_samples"]) == (40, 5120, 50)
    assert 0 < record["fid"] < 1
    facts = record["fid_facts"]
    assert (facts["weights"], facts["guidance"]) == ("ema", 1.5)
    assert len(facts["features_sha256"]) == 64
    assert facts["reference_images"] == 1348
    assert (event["event"], event["step"]) == ("evaluated", 40)
    # Other samples of the same step do not replace it; without a file the digits are classified.
    (tmp_path / "samples.json").write_text(json.dumps(metadata | {"guidance": 2.0}))
    assert main([str(save(samples, np.tile(pixels, (3, 1, 1, 1)))), str(run.path)]) == 0
    assert "without its bias" in capsys.readouterr().out
    both = [one["fid_facts"] for one in valid(run.records()) if "fid" in one]
    assert [one["guidance"] for one in both] == [1.5, 2.0]
    assert [one["features"].split()[0] for one in both] == ["Inception,", "classifier"]
    (tmp_path / "samples.json").unlink()
    assert main([str(samples), str(run.path), "--features", str(net_file)]) == 0
    assert "not recorded" in capsys.readouterr().err
    assert len(list(run.records())) == 4
