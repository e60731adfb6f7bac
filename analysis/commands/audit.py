"""`audit`: claims against the runs, or the table, that they are about; a folder of ai-toolkit."""

import argparse
from pathlib import Path

from analysis.table import put, remark, text_table

DOC = (
    "recompute claims: a YAML list of text, quantity, runs and value, or a markdown table; or tell "
    "what a folder of ai-toolkit's own output says of time"
)
EXAMPLE = """python -m analysis audit logs/claims.yaml
  python -m analysis audit README.md
  python -m analysis audit output/my_lora --runtime 1744s

a claim:
  - text: compiling makes a step 17 % faster
    quantity: speedup
    runs: [eager-1120, compiled-1120]
    value: 17 %"""


def options(sub: argparse.ArgumentParser) -> None:
    """The runtime that somebody printed of a folder."""
    sub.add_argument(
        "--runtime",
        metavar="TIME",
        help="of a folder: which of its clocks a runtime such as 1744s or 29min can have come from",
    )


def act(asked: argparse.Namespace) -> int:
    """Print the verdicts; 1 where a claim disagrees, or a folder holds more than one run."""
    from configs.errors import Unreadable

    folders = [path for path in map(Path, asked.paths) if path.is_dir()]
    if not folders:
        if asked.runtime:
            raise Unreadable("--runtime is of a folder with samples of ai-toolkit; name that")
        return _claims(asked)
    if len(folders) != 1 or len(asked.paths) != 1:
        raise Unreadable("name one folder of ai-toolkit's output, or files with claims")
    return _folder(asked, folders[0])


def _claims(asked: argparse.Namespace) -> int:
    from analysis.audit.claims import as_json, judge, read_claims
    from analysis.audit.markdown_table import judge_markdown
    from configs.errors import Unreadable

    judged = []
    for path in map(Path, asked.paths):
        if not path.is_file():
            raise Unreadable(f"{path}: no such file")
        if path.suffix.lower() in (".md", ".markdown"):
            judged += judge_markdown(path)
        else:
            judged += [judge(claim) for claim in read_claims(path)]
    put([one.row() for one in judged], asked, json=as_json(judged))
    return 1 if any(one.verdict == "disagrees" for one in judged) else 0


def _folder(asked: argparse.Namespace, folder: Path) -> int:
    from analysis.audit import aitoolkit_folder as audit
    from analysis.read.formats.ai_toolkit import sample_sets
    from analysis.read.other_logs import walk
    from configs.errors import Unreadable

    told = audit.parts(sample_sets(walk(folder)))
    if not told:
        raise Unreadable(
            f"{folder}: no samples of ai-toolkit in it (<milliseconds>__<step>_<number>.jpg)"
        )
    try:
        runtime = audit.parse_runtime(asked.runtime) if asked.runtime else None
    except ValueError as error:
        raise Unreadable(f"--runtime {error}") from None
    timeline, clocks = audit.timeline_rows(told), audit.clock_rows(told, folder)
    signs = audit.mixture(told)
    skipped = audit.skipped_steps(folder)
    pauses = [pause for part in told for pause in audit.pauses(part)]
    verdict = (
        None if runtime is None else audit.judged(folder.name, runtime, clocks, parts=len(told))
    )
    asked.rows = timeline
    if asked.json or asked.csv:
        whole = {"timeline": timeline, "clocks": clocks, "mixture": signs, "pauses": pauses}
        whole |= {"skipped": skipped}
        put(timeline, asked, json=whole | ({"runtime": verdict} if verdict else {}))
    else:
        print(text_table(timeline) + "\n\n" + text_table(clocks))
    remark([*signs, *pauses, *skipped, *([verdict] if verdict else [])])
    return 1 if signs else 0
