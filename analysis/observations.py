"""Facts of a run that a comparison needs beside its records: seed, nodes, times and repeats."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from analysis.foreign_keys import kind_of
from analysis.gpus.load import why_shared
from analysis.measure.differences import (
    causes,
    differences,
    recipe,
    seeds_of,
)
from analysis.read.machine import nodes
from analysis.read.run_log import RunLog, kept_with_log
from analysis.read.tar_archive import archive_of
from analysis.stats.contrast import contrast
from analysis.stats.repeats import common_nodes, ran_apart
from analysis.stats.replicates import CLAIMS, Contrast, Replicate, Word, mean_log
from runs.folder import RunFolder
from runs.study_folder import StudyFolder, study_of

Item = TypeVar("Item")


def seed_of(log: RunLog) -> Any:
    """Return the seed of a run, or several of them, None if none is known."""
    found = tuple(seeds_of(log.config or {}).values())
    return found if len(found) > 1 else next(iter(found), None)


def nodes_of(log: RunLog) -> frozenset[str]:
    """Return the nodes of the attempts that count for a run's rate, none if they are not known."""
    counted = {*log.attempt.tolist()} - log.superseded
    stays = [stay.nodes for number, stay in log.stays.items() if number in counted]
    return _named_apart(log.path, frozenset[str]().union(*stays) or nodes(log.facts))


def _named_apart(path: Path, found: frozenset[str]) -> frozenset[str]:
    """Return nodes under names of their own for each archive, in which they are `node1`, ..."""
    where = archive_of(path)
    return found if where is None else frozenset(f"{node} in {where.name}" for node in found)


@kept_with_log
def pass_of(log: RunLog) -> tuple[Any, ...] | None:
    """Return the pass of its study in which a run ran, with its nodes; None if either is unknown.

    Each repeat and each seed of a study is a pass over all cells in random order.
    """
    study, where = study_of(log.path), nodes_of(log)
    if study is None or not where:
        return None
    name = _passes(study.path, study.cells_file.stat().st_mtime_ns).get(log.path.name)
    return (study.path, *name, where) if name else None


@lru_cache(maxsize=16)
def _passes(study: Path, _: int) -> Mapping[str, tuple[int, str]]:
    """Return the repeat and the seed of each cell of a study; again after a change of its table."""
    rows = StudyFolder(study).rows()
    return {row.cell: (row.repeat, str(row.levels.get("seed"))) for row in rows}


def ran_at_once(logs: Sequence[RunLog]) -> dict[int, str]:
    """Return, by the id of each run that shared a node or a GPU at the same time, who did so.

    Such runs took time from each other, so that their rates are not their own. Their manifests tell
    it, and so do those of the other cells of their studies, and the readings of their GPUs.
    """
    spans = [
        (node, began, ended, log.name, id(log))
        for log in logs
        for own, began, ended in _spans(log)
        for node in own
    ]
    latest: dict[str, tuple[float, str, int]] = {}
    found = {id(log): why for log in logs if (why := why_shared(log))}
    for node, began, ended, name, own in sorted([*spans, *_of_other_cells(logs)]):
        before = latest.get(node, (began, name, own))
        if before[2] != own and began < min(before[0], ended):
            why = f"{before[1]} and {name} ran at once on {node}"
            found = {own: why, before[2]: why} | found
        latest[node] = max(before, (ended, name, own))
    return found


def _of_other_cells(logs: Sequence[RunLog]) -> Iterator[tuple[str, float, float, str, int]]:
    """Yield node, begin, end, name and a number for the attempts of cells not asked for."""
    asked = {log.path for log in logs}
    studies = {study.path: study for log in logs if (study := study_of(log.path))}
    for study in studies.values():
        for row in study.rows():
            run = RunFolder(study.cell(row.cell))
            for entry in run.entries() if run.path not in asked else ():
                began, ended = entry.get("began"), entry.get("ended")
                if began is not None and ended is not None:
                    for node in _named_apart(run.path, nodes(entry)):
                        yield node, began, ended, row.cell, -1 - row.index


@kept_with_log
def _spans(log: RunLog) -> list[tuple[frozenset[str], float, float]]:
    """Return the nodes, the begin and the end of each attempt; records stand for what is unknown.

    A log of another trainer has no manifest; its records may have times of day.
    """
    times = log.column("time")
    found = []
    if not log.stays and np.isfinite(times).any():
        return [(nodes_of(log), float(np.nanmin(times)), float(np.nanmax(times)))]
    for number, stay in log.stays.items():
        if stay.began is None:
            continue
        recorded = [event["time"] for event in log.events if event.get("attempt") == number]
        recorded += times[(log.attempt == number) & np.isfinite(times)].tolist()
        ended = max(recorded, default=stay.began) if stay.ended is None else stay.ended
        found.append((_named_apart(log.path, stay.nodes), stay.began, ended))
    return found


def begun_at(log: RunLog) -> float | None:
    """Return when a run began, None if it is not known, or took turns with others."""
    spans = _spans(log)
    return spans[0][1] if spans and not log.turns else None


def replicate(log: RunLog, value: float, **more: Any) -> Replicate:
    """Return a run as a replicate whose log of a quantity is `value`; `more` are further fields."""
    return Replicate(
        log=value,
        nodes=nodes_of(log),
        seed=seed_of(log),
        study_pass=pass_of(log),
        began=begun_at(log),
        **more,
    )


def by_seed(runs: Sequence[Replicate]) -> list[Replicate]:
    """Return a replicate for each seed, the mean of its runs; runs without a known one stay."""
    return [
        replace(
            first,
            log=mean_log([first, *others]),
            nodes=first.nodes.union(*(run.nodes for run in others)),
            stretches=tuple(np.mean([run.stretches for run in (first, *others)], axis=0).tolist()),
            blur=max(run.blur for run in (first, *others)),
        )
        for first, *others in group_alike(runs, lambda run: run.seed)
    ]


def contrast_of_seeds(
    base: Sequence[Replicate], arm: Sequence[Replicate], **options: Any
) -> Contrast:
    """Return the contrast of what depends on the seed: runs of one seed count as one.

    Arms of one seed alone are compared run by run, which is no claim about other seeds.
    """
    sides = base, arm
    seeds = by_seed(base), by_seed(arm)
    if not any(len(own) == 1 < len(side) for own, side in zip(seeds, sides, strict=True)):
        return contrast(*seeds, **options)
    found = contrast(*sides, **options)
    remarks = (*found.remarks, "of one seed") if found.is_claim else found.remarks
    return replace(found, is_claim=False, remarks=remarks)


def told_machines(found: Contrast, logs: Sequence[RunLog]) -> Contrast:
    """Return a contrast of times that speaks of these runs if one changed what its clock counts."""
    names = {
        log.name: ", ".join(log.changed) for log in logs if log.superseded & {*log.attempt.tolist()}
    }
    if not names:
        return found
    name = next(iter(names))
    remark = f"attempts of {name} differ in {names[name]}"
    return replace(found, is_claim=False, remarks=(*found.remarks, remark))


def without_early_ends(
    base: Sequence[RunLog], arm: Sequence[RunLog]
) -> tuple[Sequence[RunLog], Sequence[RunLog], list[str]]:
    """Return both sides without repeats that are in their first half, and a remark on each.

    Whether they failed, were stopped or still run: all others would be cut to what these have.
    """
    last = {id(log): int(log.step[-1]) if len(log) else 0 for log in (*base, *arm)}
    longest = max(last.values())
    early = {
        id(log)
        for log in (*base, *arm)
        if log.state.has_events and not log.state.is_done and 2 * last[id(log)] < longest
    }
    kept = [[log for log in side if id(log) not in early] or side for side in (base, arm)]
    counted = {id(log) for side in kept for log in side}
    remarks = [
        f"without {log.name}, which has {last[id(log)]} of {longest} steps"
        for log in (*base, *arm)
        if id(log) not in counted
    ]
    return kept[0], kept[1], remarks


def is_repeat(a: RunLog, b: RunLog) -> bool:
    """Whether two runs differ only in seed and in keys that affect nothing."""
    return recipe(a) is not None and recipe(a) == recipe(b)


def group_alike(items: Sequence[Item], key: Callable[[Item], Hashable | None]) -> list[list[Item]]:
    """Group items of one key, in the order of first items; an item without a key stands alone."""
    groups: dict[Hashable, list[Item]] = {}
    for number, item in enumerate(items):
        found = key(item)
        groups.setdefault((number,) if found is None else found, []).append(item)
    return list(groups.values())


def attributed(
    base: Sequence[RunLog],
    arm: Sequence[RunLog],
    *,
    of: Literal["clock", "loss"],
    word: Word | None = None,
) -> str:
    """Return a phrase that attributes a ratio of the speed or the loss of two arms.

    It is an effect only if the `word` of the verdict claims one: two single runs differ by their
    scatter, too.
    """
    a, b = base[0], arm[0]
    if a.config is None or b.config is None:
        return "configs unknown: the ratio cannot be attributed"
    seeds = {*seeds_of(a.config), *seeds_of(b.config)}
    found = [item for item in causes(differences(a, b), of=of) if item.name not in seeds]
    # A name is no cause, unless nothing else tells the runs apart.
    found = [item for item in found if kind_of(item.name) != "name"] or found
    names = [item.name for item in found]
    sides = [[nodes_of(log) for log in side] for side in (base, arm)]
    is_apart = all(map(all, sides)) and not common_nodes(*sides)
    begun = [[begun_at(log) for log in side] for side in (base, arm)]
    if of == "clock" and (is_apart or ran_apart(*begun)):
        other = "nodes" if is_apart else "times"
        joined = ", ".join([other, *names])
        return f"{other} differ, too ({joined}): not the effect of any one of them"
    if not found:
        return f"nothing known to affect the {'speed' if of == 'clock' else 'training'} differs"
    if len(found) == 1:
        unknown = of == "clock" and not all(map(all, sides))
        if word in CLAIMS:
            return f"the effect of {found[0]}" + (", or of nodes" if unknown else "")
        return f"only this differs: {found[0]}" + (" (or nodes)" if unknown else "")
    joined = ", ".join(names)
    return f"{len(found)} things differ ({joined}): not the effect of any one of them"
