"""`python -m launch doctor`: the jobs, the table, the site file."""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from configs.run.folder import ROOT
from launch.doctor import gpu_flags, measurements, site_file
from launch.doctor.measurements import Measurement
from launch.doctor.probe_jobs import ProbeJobs, bench
from launch.slurm import client
from launch.slurm.client import Refused
from launch.slurm.flags import Flags, spell
from launch.submit.site import logs_of_site
from launch.table import show

# The quick ones first; the limit's job takes two minutes and runs beside them.
_ASKED: dict[str, Callable[[ProbeJobs], list[Measurement]]] = {
    "requeue": measurements.requeue,
    "place": measurements.place,
    "limit": measurements.limit,
}


def doctor(*, site: str | None, flags: Flags, quick: bool, force: bool, patience_min: float) -> int:
    """Measure, print, write; 0 where all was measured. Raises ConfigError and Refused."""
    name = site_file.site_name(site) if site else site_file.cluster_name()
    words = spell(flags)
    partition = str(flags.get("partition") or _default_partition())
    told = measurements.configured(partition)
    found = gpu_flags.gpus(words)
    told += _gpu_answers(found, words)
    told += _measured(words, quick=quick, patience_min=patience_min)
    show([{"what": one.name, "answer": one.value, "means": one.means} for one in told], "text")
    path = ROOT / "env" / "sites" / f"{name}.sh"
    content = site_file.text(name, told, found, flags=words)
    if site_file.write(path, content, force=force):
        print(f"written: {path}; complete LOGS and MODULES, then take it by --site {name}")
    else:
        print(f"{path} is there and stays as it is; --force overwrites it", file=sys.stderr)
    return int(any("not measured" in one.value for one in told))


def _default_partition() -> str:
    named = client.partitions()
    chosen = next((one.name for one in named if one.is_default), None)
    if chosen is None:
        raise Refused("no partition is the default one: name one by --partition")
    return chosen


def _gpu_answers(found: list[gpu_flags.Gpus], words: list[str]) -> list[Measurement]:
    if not found:
        return [Measurement(name="GPUs", value="none", means="sinfo lists no gres gpu here")]
    doubt = (
        "" if gpu_flags.discriminates(words) else "--test-only takes types that do not exist too"
    )
    return [
        Measurement(
            name=f"GPU {one.kind or '(untyped)'}, {one.most} a node",
            value=", ".join(one.accepted) or "no spelling accepted",
            means=doubt,
        )
        for one in found
    ]


def _measured(words: list[str], *, quick: bool, patience_min: float) -> list[Measurement]:
    logs = logs_of_site(ROOT)
    logs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=logs))
    asked = {name: ask for name, ask in _ASKED.items() if not (quick and name == "limit")}
    told = []
    try:
        with bench(folder, words, patience_s=60 * patience_min) as one:
            # The longest first: it runs beside the others.
            for name in reversed(asked):
                one.submit(name)
            for name, ask in asked.items():
                told += ask(one)
                one.report(f"{name}: measured")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return told
