"""Write a site file with what was measured, to be completed by hand."""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Sequence

from configs.errors import ConfigError
from launch.doctor.gpu_flags import SYNTAXES, Gpus, best

_TEMPLATE = """\
# shellcheck shell=bash
# {cluster}, measured by `ditbench doctor` on {date}. See env/sites/example.sh.
{host}

# Those that were loaded when it was measured:
# shellcheck disable=SC2034
MODULES=({modules})

# Scratch space shared by all nodes:
#   LOGS=${{LOGS:-/scratch/$(id -un)/ditbench}}

# shellcheck disable=SC2034
JOB_FLAGS=({flags})

{remark}site_flags() {{
  printf '%s\\n' "--nodes=$2" --ntasks-per-node=1 {syntax}
}}
"""


def site_name(text: str) -> str:
    """Return the name of a site; raise `ConfigError` if it does not suit a file."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", text):
        raise ConfigError(f"{text!r}: invalid as a site name; use letters, digits, _ and -")
    return text


def text(name: str, found: Sequence[Gpus], *, flags: Sequence[str], node: str) -> str:
    """Return the text of the file; `node` is the host name of a compute node."""
    syntax = best(found)
    remark = "# Accepted by sbatch --test-only for all types of GPU.\n"
    if syntax is None:
        remark = "# Not measured: no syntax was accepted for all GPU types. Try them by hand.\n"
    return _TEMPLATE.format(
        cluster=name,
        date=time.strftime("%Y-%m-%d"),
        host=_host_lines(node),
        modules=shlex.join(filter(None, os.environ.get("LOADEDMODULES", "").split(":"))),
        flags=shlex.join(flags),
        remark=remark,
        syntax=" ".join(SYNTAXES[syntax or "--gpus-per-node=TYPE:N"]),
    )


def _host_lines(node: str) -> str:
    """Return the lines by which env/site.sh recognises hosts like this one and the node."""
    named = subprocess.run(["hostname", "-f"], capture_output=True, text=True, check=False)
    hosts = [host for host in (named.stdout.strip(), node) if re.fullmatch(r"[\w.-]+", host)]
    patterns = dict.fromkeys(map(_pattern, hosts))
    if lines := [f"# host: {one}" for one in patterns if not one.startswith("localhost")]:
        return "\n".join(lines)
    return "# To select this file automatically, add a line such as `# host: *.example.edu`."


def _pattern(host: str) -> str:
    """Return a pattern of hosts: `login[0-9]*.example.edu` for `login1.example.edu`."""
    name, dot, domain = host.partition(".")
    return re.sub(r"[0-9].*", "[0-9]*", name) + dot + domain
