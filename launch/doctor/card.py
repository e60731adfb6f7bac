"""`ditbench card`: measure each kind of GPU by a short job, and show it beside its data sheet."""

import contextlib
import math
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from configs.disk import read_end, replace_file
from configs.errors import ConfigError
from configs.gpus import find_gpu
from configs.schema.training import Resources
from configs.table import Row, show
from launch.doctor.probe_jobs import ProbeJobs, probe_jobs
from launch.slurm import client
from launch.slurm.client import Refused
from launch.slurm.flags import to_words
from launch.submit.site import read_site, site_logs
from runs.cards import Card, card_key, cards_folder, read_card
from runs.folder import ROOT
from runs.json_files import read_json

_PATIENCE_S = 1800.0


def train_card(*words: str | Path) -> int:
    """Run `train card` here; return its exit status."""
    command = [sys.executable, "-m", "train", "card", *words]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def make_cards(*, partition: str | None, gpu: str | None, nodes: int, here: bool) -> int:
    """Measure this machine, or each kind of GPU by a job; return 1 if any was not measured."""
    kinds = {} if here else {kind: most for kind, (_, most) in client.gpus(partition).items()}
    chosen = [kind for kind in kinds if gpu is None or kind.casefold() == gpu.casefold()]
    if not (chosen or here):
        known = ", ".join(kinds) or "none"
        raise ConfigError(f"sinfo lists {known} here, not {gpu or 'a GPU'}; or measure with --here")
    (logs := site_logs(ROOT)).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".card-", dir=logs) as folder:
        if here:
            file = Path(folder) / "card.json"
            return train_card("--out", file) or _keep(file)
        with contextlib.ExitStack() as jobs:
            waiting = {}
            for kind in chosen:
                resources = Resources(gpu=kind or None, nodes=nodes, gpus_per_node=kinds[kind])
                (own := Path(folder) / f"gpu-{kind}").mkdir()
                try:
                    waiting[kind] = jobs.enter_context(_job(own, resources, partition))
                except Refused as error:
                    print(f"{kind}: not measured: {error}", file=sys.stderr)
            return int([kind for kind, job in waiting.items() if _measured(kind, job)] != chosen)


@contextlib.contextmanager
def _job(folder: Path, resources: Resources, partition: str | None) -> Iterator[ProbeJobs]:
    """Queue the job that measures a kind of node in a folder; cancel it at the end."""
    site = read_site(ROOT, resources, name=None)
    exports = site.exports() | {"ROOT": str(ROOT)}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in exports.items()]
    (folder / "environment").write_text("".join(lines), encoding="utf-8")
    flags = {"cpus-per-task": str(resources.cpus_per_gpu * resources.gpus_per_node)} | site.flags
    flags |= {"partition": partition} if partition else {}
    with probe_jobs(folder, to_words(flags), patience_s=_PATIENCE_S) as jobs:
        jobs.submit("card")
        yield jobs


def _measured(kind: str, jobs: ProbeJobs) -> bool:
    """Wait for a job and keep its card; if there is none, print the job's last line."""
    if jobs.wait("card", (jobs.folder / "card.json").is_file):
        return not _keep(jobs.folder / "card.json")
    said = read_end(jobs.folder / "card.out").strip() or "the job has not started"
    print(f"{kind}: not measured: {said.splitlines()[-1]}", file=sys.stderr)
    return False


def _keep(file: Path) -> int:
    """Put a card in place of the site's, with the all-reduces of other sizes; show it, return 0."""
    card = read_json(file, Card)
    path = cards_folder() / f"{card_key(card.device)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(ConfigError, FileNotFoundError):
        sizes = [m.shape for m in card.of("all_reduce")]
        other = [m for m in read_card(path).of("all_reduce") if m.shape not in sizes]
        card = card.model_copy(update={"measured": card.measured + other})
    replace_file(path, card.model_dump_json(indent=1) + "\n")
    show(rows(card), "text")
    print(f"{remark(card)}\nwritten: {path}")
    return 0


def rows(card: Card) -> list[Row]:
    """Return the best rate of each measurement, beside the data sheet of a known GPU."""
    sheet = find_gpu(card.device)
    peaks = sheet.peak_tflops.model_dump() if sheet else {}
    # Work of a shape in the unit: three products of 2 m n k, seven of attention, a copy both ways.
    kinds: dict[str, tuple[str, Callable[[list[int]], float]]] = {
        "product": ("TFLOP/s", lambda s: 6e-12 * math.prod(s)),
        "attention": ("TFLOP/s", lambda s: 14e-12 * math.prod(s) * s[2]),
        "copy": ("GB/s", lambda s: 2e-9 * s[0]),
        "update": ("1e9 parameters/s", lambda s: 1e-9 * s[0]),
        "launch": ("1000/s", lambda s: 1e-3),
        "storage": ("GB/s", lambda s: 1e-9 * s[0]),
        "all_reduce": ("GB/s", lambda s: 1e-9 * s[0]),
    }
    best: dict[str, Row] = {}
    for m in card.measured:
        if m.name not in kinds:
            continue
        unit, work = kinds[m.name]
        ranks = f"{m.shape[1]} ranks, {m.shape[2]} nodes" if m.name == "all_reduce" else ""
        name, rate = " ".join(filter(None, (m.name, m.precision, ranks))), work(m.shape) / m.value
        known = sheet.bandwidth_gb_s if sheet and m.name == "copy" else peaks.get(str(m.precision))
        share = rate / known if known else None
        if name not in best or rate > best[name]["rate"]:
            best[name] = {
                "measured": name, "rate": rate, "unit": unit, "sheet": known, "share": share,
                "spread": m.spread,
            }  # fmt: skip
    return list(best.values())


def remark(card: Card) -> str:
    """Return how the device stands to its data sheet, and what limits it."""
    facts, found = card.facts, [row for row in rows(card) if row["share"]]
    limits = [f"{facts['threads']:.0f} threads"] if "threads" in facts else []
    if "power_limit_w" in facts:
        limits.append(f"power limit {facts['power_limit_w']:.0f} W")
    if {"sm_mhz", "max_sm_mhz"} <= facts.keys():
        limits.append(f"{facts['sm_mhz']:.0f} of {facts['max_sm_mhz']:.0f} MHz under load")
    limits += [f"driver {card.versions['driver']}"] if "driver" in card.versions else []
    share = f"reaches {found[0]['share']:.0%} of its data sheet" if found else "has no data sheet"
    return f"{card.device} {share}: {', '.join(limits)}"
