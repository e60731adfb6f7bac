"""`ditbench doctor`: look at the cluster by a job, print a table and write a site file."""

import sys
import tempfile
from pathlib import Path

from configs.disk import replace_file
from configs.schema.training import Resources
from configs.table import text_table
from launch.doctor import gpu_flags, measurements, site_file
from launch.doctor.measurements import HOST, Measurement
from launch.slurm import client
from launch.slurm.flags import Flags, to_words
from launch.submit.site import read_site
from runs.folder import ROOT


def doctor(*, site: str | None, flags: Flags, force: bool) -> int:
    """Measure the cluster; return 1 if anything is unknown. Raise `ConfigError` or `Refused`."""
    cluster = client.shown_field(client.show("config"), "ClusterName")
    name = site_file.site_name(site or cluster or "cluster")
    words = to_words(flags)
    gpus = gpu_flags.gpus(words)
    found = [*measurements.slurm_version(), *_gpu_measurements(gpus, words)]
    selected = read_site(ROOT, Resources(), name=None)
    selected.logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=".doctor-", dir=selected.logs, ignore_cleanup_errors=True
    ) as folder:
        found += measurements.probe(Path(folder), words, container=selected.container)
    rows = [{"property": m.name, "value": m.value, "meaning": m.means} for m in found]
    print(text_table(rows))
    path = ROOT / "env" / "sites" / f"{name}.sh"
    node = next((one.value for one in found if one.name == HOST), "")
    if force or not path.exists():
        replace_file(path, site_file.text(name, gpus, flags=words, node=node))
        path.chmod(0o644)
        chosen = read_site(ROOT, Resources(), name=None).name
        use = "used on this host from now on"
        if chosen != name:
            use = f"but {chosen} is selected here, by SITE or its `# host:` line: use --site {name}"
        print(f"written: {path}, {use}; fill in LOGS (scratch space), and check MODULES")
    else:
        print(f"{path} exists and is unchanged; --force overwrites it", file=sys.stderr)
    return int(any("not measured" in one.value for one in found))


def _gpu_measurements(gpus: list[gpu_flags.Gpus], words: list[str]) -> list[Measurement]:
    if not gpus:
        return [Measurement(name="GPUs", value="none", means="sinfo lists no gres gpu here")]
    doubt = "" if gpu_flags.discriminates(words) else "--test-only accepts unknown types too"
    return [
        Measurement(
            name=f"GPU {one.kind or '(untyped)'}, {one.most} per node",
            value=", ".join(one.accepted) or "no syntax accepted",
            means=doubt,
        )
        for one in gpus
    ]
