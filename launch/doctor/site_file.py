"""A site file with what was measured, ready to be completed by hand."""

import re
import shlex
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from configs.disk import replace_file
from configs.errors import ConfigError
from configs.terminal import printable
from launch.doctor.gpu_flags import SPELLINGS, Gpus, best
from launch.doctor.measurements import Measurement
from launch.slurm import client

_TEMPLATE = """\
# shellcheck shell=bash
# {cluster}, measured by `python -m launch doctor` on {date}. Each line: env/sites/example.sh.
{host}
#
{measured}

# shellcheck disable=SC2034
MODULES=()

# Scratch space that all nodes see:
#   LOGS=${{LOGS:-/scratch/$(id -un)/ditbench}}

# shellcheck disable=SC2034
JOB_FLAGS=({flags})

{remark}site_flags() {{
  printf '%s\\n' "--nodes=$2" --ntasks-per-node=1 {spelling}
}}
"""


def cluster_name() -> str:
    """The name that Slurm gives the cluster, fit for a file's name."""
    said = client.run("scontrol", "show", "config").stdout
    found = re.search(r"^ClusterName\s*=\s*(\S+)", said, re.MULTILINE)
    return site_name(found[1] if found else "cluster")


def site_name(text: str) -> str:
    """A name for a site; `ConfigError` for one that no file should have."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", text):
        raise ConfigError(f"{text!r}: no name for a site; take letters, digits and -")
    return text


def text(
    name: str, answers: Sequence[Measurement], found: Sequence[Gpus], *, flags: Sequence[str]
) -> str:
    """The file, whole."""
    spelling = best(found)
    remark = "# Accepted by sbatch --test-only for all types listed above.\n"
    if spelling is None:
        remark = "# Not measured: no spelling was accepted for all types of GPU. Try it by hand.\n"
    measured = [_comment(f"{one.name}: {one.value}", one.means) for one in answers]
    return _TEMPLATE.format(
        cluster=name,
        date=time.strftime("%Y-%m-%d"),
        host=_host_line(),
        measured="\n".join(measured),
        flags=shlex.join(flags),
        remark=remark,
        spelling=" ".join(SPELLINGS[spelling or "--gpus-per-node=TYPE:N"]),
    )


def _host_line() -> str:
    """The line by which env/site.sh knows this host again; none for a name that all hosts have."""
    host = printable(socket.getfqdn())
    if host.startswith("localhost"):
        return (
            "# To be chosen by itself, this needs a line such as `# host: *.cluster.example.edu`."
        )
    return f"# host: {host}"


def _comment(said: str, means: str) -> str:
    # Escaped, so that the cluster's words stay inside the comment.
    return f"# {printable(said)}{f' ({printable(means)})' if means else ''}"


def write(path: Path, content: str, *, force: bool) -> bool:
    """Write the file, unless one is there; whether it was written."""
    if path.exists() and not force:
        return False
    replace_file(path, content)
    path.chmod(0o644)
    return True
