"""`train.compile` on a GPU needs a C compiler and the headers of Python on the compute node."""

import sysconfig
from pathlib import Path

import pytest

from configs.errors import ConfigError
from train.model.parallelize import check_compiler


@pytest.mark.parametrize("compiler", [None, "gcc", "clang"])
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
