"""Rules about the rendezvous: how the processes of a job find each other."""

import re
from collections.abc import Iterator

from launch.lint.commands import AGENT
from launch.lint.script import Script

_PORT = re.compile(
    r"MASTER_PORT=[\"']?(?:\$\{\w+:-)?\d|--(?:main[-_]process|master)[-_]port[= ]\d"
    r"|--rdzv[-_]endpoint[= ]\S*:[\"']?\d|--(?:init[-_]method|dist[-_]url)[= ]\S*:\d+"
)


def fixed_port(script: Script) -> Iterator[int]:
    """A port that every job shares."""
    if script.directive("exclusive") and len(script.find(AGENT)) < 2:
        return
    yield from (line.number for line in script.lines if _PORT.search(line.text))


def localhost_fallback(script: Script) -> Iterator[int]:
    """localhost as the fallback for the head address."""
    local = r"[\"']?(localhost|127\.0\.0\.1)"
    several = (script.count("nodes") or 1) > 1 or bool(
        script.find(r"\bSLURM_(JOB_)?(NUM_NODES|NNODES)")
    )
    for line in script.lines:
        default = line.has(r"(MASTER_ADDR|head|HEAD)\w*[\"']?[^;]*:[-=]" + local)
        if line.has(r"\|\|\s*(echo\s+|\w+=)" + local) or (several and default):
            yield line.number
