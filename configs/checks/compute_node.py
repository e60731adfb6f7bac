"""Needs of GPU jobs on a compute node: a driver for this build of torch, a compiler for Triton."""

import os
import re
import runpy
import shutil
import socket
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

from configs.errors import ConfigError

# The least NVIDIA driver by major version of CUDA: docs.nvidia.com/deploy/cuda-compatibility
_LEAST_DRIVER = {"12": 525, "13": 580}
# Exists if the driver is loaded, whether or not torch can use it.
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def nvidia_driver() -> str | None:
    """Return the version of the NVIDIA driver, or None if none is loaded."""
    if not _NVIDIA_DRIVER.exists():
        return None
    found = re.search(r"\d+\.[.\d]+", _NVIDIA_DRIVER.read_text(encoding="utf-8"))
    return found[0] if found else "unknown"


def check_driver() -> None:
    """Raise `ConfigError` if the NVIDIA driver here is too old for torch, without importing it."""
    build = runpy.run_path(str(distribution("torch").locate_file("torch/version.py")))
    driver, cuda = nvidia_driver() or "", build["cuda"] or ""
    least, major = _LEAST_DRIVER.get(cuda.partition(".")[0], 0), re.match(r"\d+", driver)
    if major and int(major[0]) < least:
        node = socket.gethostname()
        raise ConfigError(
            f"torch {build['__version__']} for CUDA {cuda} needs the NVIDIA driver {least} or "
            f'newer, {node} has {driver}: set TORCH="torch==2.8.0 torchvision==0.23.0" and '
            "TORCH_INDEX=https://download.pytorch.org/whl/cu126 in env/sites/<cluster>.sh (for "
            "drivers from 525 on) and run env/create.sh again"
        )


def check_compiler() -> None:
    """Raise `ConfigError` if Triton cannot build the launchers of its kernels on this node."""
    # Triton's own rule: Debian's posix_local has no headers.
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")
    header = Path(sysconfig.get_path("include", scheme), "Python.h")
    elsewhere = os.environ.get("CPATH") or os.environ.get("C_INCLUDE_PATH")
    missing = [] if elsewhere or header.is_file() else [str(header)]
    if not (os.environ.get("CC") or shutil.which("clang") or shutil.which("gcc")):
        missing.append("a C compiler (gcc, clang or CC)")
    if missing:
        node = socket.gethostname()
        raise ConfigError(
            f"train.compile needs {' and '.join(missing)} on {node}: load them by MODULES "
            "in env/sites/<cluster>.sh, or set train.compile to false"
        )
