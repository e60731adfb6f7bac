"""`audit`: recompute claims about runs; derive the timeline of ai-toolkit's output."""

import argparse
from pathlib import Path

from analysis.audit import aitoolkit_folder as audit
from analysis.audit.claims import judge, parse_seconds, read_claims
from analysis.audit.markdown_table import judge_markdown
from analysis.read.formats.ai_toolkit import sample_sets
from analysis.read.other_logs import walk
from analysis.table import put, remark
from configs.errors import Unreadable
from configs.table import text_table

EXAMPLE = """ditbench audit logs/claims.yaml
  ditbench audit README.md
  ditbench audit output/my_lora --runtime 1744s

a claim:
  - text: compiling makes a step 17 % faster
    quantity: speedup
    runs: [eager-1120, compiled-1120]
    value: 17 %"""


def options(parser: argparse.ArgumentParser) -> None:
    """Add the run time that was printed for a folder."""
    parser.add_argument(
        "--runtime",
        metavar="TIME",
        help="for a folder: name the clocks that a run time such as 1744s or 29min can come from",
    )


def run(args: argparse.Namespace) -> int:
    """Print the verdicts; return 1 if a claim disagrees or a folder holds more than one run."""
    folders = [path for path in map(Path, args.paths) if path.is_dir()]
    if not folders:
        if args.runtime:
            raise Unreadable("--runtime needs a folder with samples of ai-toolkit")
        return _claims(args)
    if len(folders) != 1 or len(args.paths) != 1:
        raise Unreadable("name one folder of ai-toolkit's output, or files with claims")
    return _folder(args, folders[0])


def _claims(args: argparse.Namespace) -> int:
    judged = []
    for path in map(Path, args.paths):
        if not path.is_file():
            raise Unreadable(f"{path}: no such file")
        if path.suffix.lower() in (".md", ".markdown"):
            judged += judge_markdown(path)
        else:
            judged += [judge(claim) for claim in read_claims(path)]
    put(judged, args, json={"claims": judged})
    return 1 if any(row["verdict"] == "disagrees" for row in judged) else 0


def _folder(args: argparse.Namespace, folder: Path) -> int:
    found = audit.parts(sample_sets(walk(folder)))
    if not found:
        raise Unreadable(
            f"{folder}: no samples of ai-toolkit in it (<milliseconds>__<step>_<number>.jpg)"
        )
    try:
        runtime = parse_seconds(args.runtime)[0] if args.runtime else None
    except Unreadable as error:
        raise Unreadable(f"--runtime {error}") from None
    timeline, clocks = audit.timeline_rows(found), audit.clock_rows(found, folder)
    signs = audit.mixture(found)
    skipped = audit.skipped_steps(folder)
    pauses = [pause for part in found for pause in audit.pauses(part)]
    verdict = (
        None if runtime is None else audit.judged(folder.name, runtime, clocks, parts=len(found))
    )
    args.rows = timeline
    if args.json or args.csv:
        whole = {"timeline": timeline, "clocks": clocks, "mixture": signs, "pauses": pauses}
        whole |= {"skipped": skipped}
        put(timeline, args, json=whole | ({"runtime": verdict} if verdict else {}))
    else:
        print(text_table(timeline, whole=args.all) + "\n\n" + text_table(clocks, whole=args.all))
    remark([*signs, *pauses, *skipped, *([verdict] if verdict else [])])
    return 1 if signs else 0
