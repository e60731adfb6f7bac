"""JSON lines, and JSON with a list of records or lists of numbers."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from analysis.read.formats.structured import AXES, as_numbers, logs_of
from analysis.read.run_log import RunLog
from analysis.read.text.pieces import open_bytes
from analysis.read.vocabulary import is_evaluation, is_loss, meaning
from configs.errors import Unreadable

LARGEST_JSON = 1 << 28


def read_json(path: Path, *, name: str, columns: Mapping[str, str]) -> list[RunLog] | None:
    """Return the runs in JSON lines, or in a JSON file with a list of records; None if in neither.

    `columns` are the names that a user gave: those of the file by ours.
    """
    with open_bytes(path) as file:
        text = file.read(LARGEST_JSON + 1)
    is_state = b'"log_history"' in text
    if len(text) > LARGEST_JSON:
        # A file of data may be as large; a log of that size is named.
        if path.suffix == ".jsonl" or is_state:
            raise Unreadable(f"{path}: larger than {LARGEST_JSON >> 20} MiB of JSON")
        return None
    found, kind = list(_json_lines(text)), "JSON lines"
    if len(found) < 2:
        tree = _json(text)
        if tree is None and not is_state:
            return None
        records, kind = max(_records_of_lists(tree), _records(tree), key=len), "JSON"
        if tree is None or (isinstance(tree, dict) and "log_history" in tree):
            if tree is None or not isinstance(tree["log_history"], list):
                raise Unreadable(f"{path}: looks like a trainer_state.json but is damaged")
            records, kind = tree["log_history"], "HF Trainer"
        found = list(enumerate(map(_flat, records), start=1))
    return logs_of(found, path=path, name=name, kind=kind, columns=columns)


def _json(text: bytes) -> Any:
    """Return the value of a JSON text, None if it is damaged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_lines(text: bytes) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the records of JSON lines; nothing if the first line is not a whole object."""
    for line, part in enumerate(text.split(b"\n"), start=1):
        record = _json(part) if part.strip() else None
        if isinstance(record, dict):
            yield line, _flat(record)
        elif line == 1 and part.strip():
            return


def _flat(record: Any) -> dict[str, float]:
    """Return the numbers of a record; of a nested object its mean, or names joined by `/`."""
    if not isinstance(record, dict):
        return {}
    named: dict[str, Any] = {}
    for name, value in record.items():
        if not isinstance(value, dict):
            named[name] = value
        elif type(value.get("mean")) in (int, float):
            named[name] = value["mean"]
        else:
            named |= {f"{name}/{inner}": one for inner, one in value.items()}
    return as_numbers(named)


def _records(tree: Any) -> list[Any]:
    """Return the list of records in a JSON tree: itself, or one of its values."""
    if isinstance(tree, list):
        return tree
    lists = [
        (str(name), value) for name, value in (tree.items() if isinstance(tree, dict) else ())
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
    ]  # fmt: skip
    return min(lists, key=lambda pair: is_evaluation(pair[0]), default=("", []))[1]


def _records_of_lists(tree: Any) -> list[Any]:
    """Return the records of lists of numbers with one length: `{"loss": [3.1, 2.7], ...}`.

    The lists may be one level deeper, as in `{"history": {"loss": [3.1, 2.7]}}`. Of evaluations
    that are fewer the last one is of the last record; the log does not say where the others are.
    """
    trees = [tree, *tree.values()] if isinstance(tree, dict) else []
    for node in trees:
        lists = {
            str(name): value for name, value in (node.items() if isinstance(node, dict) else ())
            if isinstance(value, list) and all(type(one) in (int, float, NoneType) for one in value)
        }  # fmt: skip
        if any(meaning(name)[0] in AXES or is_loss(name) for name in lists):
            lengths = [len(value) for name, value in lists.items() if not is_evaluation(name)]
            (length, _), *_ = Counter(lengths or map(len, lists.values())).most_common(1)
            kept = {name: value for name, value in lists.items() if len(value) == length}
            found = [dict(zip(kept, row, strict=True)) for row in zip(*kept.values(), strict=True)]
            for name, values in lists.items():
                if is_evaluation(name) and 0 < len(values) < length:
                    found[-1][f"{name} (the last)"] = values[-1]
            return found
    return []
