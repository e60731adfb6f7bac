"""Download the wheels that a machine with torch and no network lacks, and say what they weigh.

    python3 -m benchmarks.gpu wheels FOLDER [--bare] [--optional] [--python 3.12]

By default: what images with torch, numpy, Pillow, PyYAML, safetensors and pytest lack.
`--bare` adds these for an image with torch alone; `--optional` adds what single pieces need
(diffusers and peft). Versions are those of env/, for x86-64.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.pieces import ROOT

# pip does not derive older manylinux tags from a newer one if a platform is named.
PLATFORMS = (
    "manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux_2_12",
    "manylinux_2_5", "manylinux2014", "manylinux2010", "manylinux1",
)  # fmt: skip
LIMIT_MIB = 64
TRAINER = ("pydantic", "nvidia-ml-py")
BARE = ("numpy", "pillow", "pyyaml", "safetensors", "pytest", "pytest-timeout",
        "pytest-xdist")  # fmt: skip
# Without what they need: images with torch have it, or it is only needed for downloads.
OPTIONAL = ("diffusers", "peft")


def main(arguments: list[str]) -> int:
    """Download into a folder; return pip's status, or 1 if the wheels exceed the limit."""
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks.gpu wheels", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--optional", action="store_true")
    parser.add_argument("--python", default="3.12", help="version of Python there")
    options = parser.parse_args(arguments)
    platforms = [f"--platform={each}_x86_64" for each in PLATFORMS]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", *platforms,
           "--python-version", options.python, "--implementation", "cp",
           "-d", str(options.folder)]  # fmt: skip
    names = (*TRAINER, *(BARE if options.bare else ()))
    asked = [[*pinned(names), "typing-extensions>=4.16"]]
    if options.optional:
        asked.append(["--no-deps", *pinned(OPTIONAL)])
    for each in asked:
        if status := subprocess.run([*pip, *each], check=False).returncode:
            return status
    sizes = {wheel.name: wheel.stat().st_size / 2**20 for wheel in options.folder.glob("*.whl")}
    for name, mib in sorted(sizes.items()):
        print(f"{mib:6.2f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total:6.2f} MiB in all, of {LIMIT_MIB}; there:")
    print(
        f"python3 -m pip install -q --no-index --no-deps --target /tmp/site {options.folder}/*.whl"
    )
    print("export PYTHONPATH=/tmp/site")
    return int(total > LIMIT_MIB)


def pinned(names: tuple[str, ...]) -> list[str]:
    """Return the requirements of env/ for some packages. Raise `KeyError` for another one."""
    files = (
        ROOT / "env" / name for name in ("light.txt", "requirements.txt", "requirements-dev.txt")
    )
    lines = [line for file in files for line in file.read_text().splitlines() if "==" in line]
    versions = {line.partition("==")[0]: line for line in lines}
    return [versions[name] for name in names]
