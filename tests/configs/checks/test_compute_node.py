"""A compute node needs a driver for this torch, and for `train.compile` a compiler and headers."""

import sysconfig
from pathlib import Path

import pytest

from configs.checks import compute_node
from configs.checks.compute_node import check_compiler, check_driver
from configs.errors import ConfigError


@pytest.mark.parametrize("compiler", [None, "gcc"])
@pytest.mark.parametrize("has_header", [True, False])
def test_a_node_that_cannot_build_triton_launchers_is_refused(
    compiler: str | None, has_header: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CC", "CPATH", "C_INCLUDE_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    if compiler:
        (tmp_path / compiler).touch(mode=0o700)
    if has_header:
        (tmp_path / "Python.h").touch()
    if compiler and has_header:
        check_compiler()
        return
    with pytest.raises(ConfigError, match=r"train\.compile needs .*MODULES") as refused:
        check_compiler()
    assert ("a C compiler" in str(refused.value)) == (compiler is None)
    assert ("Python.h" in str(refused.value)) == (not has_header)


@pytest.mark.parametrize(
    ("driver", "cuda", "fits"),
    [
        ("550.54.15", "13.2", False),
        ("580.65.06", "13.2", True),
        ("515.43.04", "12.6", False),
        ("550.54.15", None, True),
        (None, "13.2", True),
    ],
)
def test_a_driver_older_than_the_cuda_of_torch_is_refused_with_the_lines_of_the_site_file(
    driver: str | None, cuda: str | None, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_node, "nvidia_driver", lambda: driver)
    build = {"__version__": "2.15.0", "cuda": cuda}
    monkeypatch.setattr(compute_node.runpy, "run_path", lambda _: build)
    if fits:
        check_driver()
        return
    with pytest.raises(ConfigError, match=r'TORCH="torch==.*TORCH_INDEX=.*sites') as refused:
        check_driver()
    assert f"torch 2.15.0 for CUDA {cuda} needs" in str(refused.value)
    assert f"has {driver}" in str(refused.value)


def test_the_build_of_torch_is_read_without_its_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch

    monkeypatch.setattr(compute_node, "nvidia_driver", lambda: "1.0")
    monkeypatch.setattr(compute_node, "_LEAST_DRIVER", {str(torch.version.cuda).split(".")[0]: 2})
    with pytest.raises(ConfigError) as refused:
        check_driver()
    assert f"torch {torch.__version__} for CUDA {torch.version.cuda}" in str(refused.value)
