"""Parts of a self-contained HTML page: text is escaped, nothing is fetched, no style is inline."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from configs.table import formatted, heading, is_number
from configs.terminal import printable

STATIC = Path(__file__).parent / "static"
LONGEST_UNBROKEN = 22
FEWEST_ALIKE = 3
# Columns before the verdicts, and rows that are seen at once.
MOST_BEFORE, LONG = 2, 40
MOST_OPEN = 8
# Characters of JSON that turn the direction of text: they are shown by their numbers.
_TURNING = re.compile(r"\\(u202[a-e]|u206[6-9])")
# Columns for programs: the sentence in `verdict` says what they say.
_FOR_PROGRAMS = ("word", "why", "comparisons")
# The classes of words that judge.
_BADGES = {
    **dict.fromkeys(("done", "faster", "same", "better"), "good"),
    **dict.fromkeys(("failed", "lost", "slower", "worse"), "bad"),
    "undetermined": "open",
}


def text(value: object) -> str:
    """Return a value as escaped text."""
    return html.escape(printable(str(value)))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as HTML without empty columns.

    Verdicts stand beside the first names, so that no screen is too narrow for them. A column of one
    value is a line below.
    """
    names = dict.fromkeys(name for row in rows for name in row if name not in _FOR_PROGRAMS)
    alike = _alike(rows, list(names)[1:])
    heads = [
        name
        for name in names
        if name not in alike and any(row.get(name) is not None for row in rows)
    ]
    numeric = {head for head in heads if all(is_number(row.get(head)) for row in rows)}
    before = heads[: next((n for n, head in enumerate(heads) if head in numeric), len(heads))]
    first = [head for head in before[:MOST_BEFORE] if not head.endswith("verdict")]
    heads.sort(key=lambda head: (head not in first, not head.endswith("verdict")))
    top = "".join(_head(head, number=head in numeric) for head in heads)
    lines = ["".join(_cell(row, head, number=head in numeric) for head in heads) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    same = "; ".join(f"{heading(name)} {formatted(value)}" for name, value in alike.items())
    below = aside(f"All rows: {same}.") if alike else ""
    kind = "wide long" if len(rows) > LONG else "wide"
    return (
        f'<div class="{kind}"><table>\n<thead>\n<tr>{top}</tr>\n</thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>{below}"
    )


def _alike(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return the columns that have one value in all of several rows, but for results."""
    return {
        name: rows[0][name]
        for name in names
        if len(rows) >= FEWEST_ALIKE and not name.endswith(("state", "verdict"))
        if rows[0].get(name) not in (None, "") and len({str(row.get(name)) for row in rows}) == 1
    }


def _head(name: str, *, number: bool) -> str:
    """Return the head of a column, with places where a line may end."""
    words = re.sub("([._])", r"\1<wbr>", text(heading(name)))
    return f'<th scope="col" data-name="{text(name)}"{_class(name, number=number)}>{words}</th>'


def _class(content: str, *, number: bool) -> str:
    return ' class="n"' if number else ' class="w"' if len(content) > LONGEST_UNBROKEN else ""


def _cell(row: Mapping[str, Any], head: str, *, number: bool) -> str:
    shown = formatted(row.get(head))
    content, kind = text(shown), _class(shown, number=number)
    if head.endswith(("state", "verdict")):
        word = str(row.get("word") or shown).split(" ")[0]
        badge = _BADGES.get(word)
        content = f'<span class="badge {badge}">{content}</span>' if badge else content
    if head.endswith("verdict"):
        kind = ' class="v w"' if kind else ' class="v"'
    return f"<td{kind}>{content}</td>"


def section(name: str, title: str, *parts: str) -> str:
    """Return a titled part of the page that the navigation links to."""
    inside = "\n".join(part for part in parts if part)
    return f'<section id="{name}">\n<h2>{text(title)}</h2>\n{inside}\n</section>'


def aside(remark: str) -> str:
    """Return a remark in small print."""
    return f'<p class="aside">{text(remark)}</p>'


def folded(title: str, *parts: str) -> str:
    """Return parts that a click opens."""
    return f"<details><summary>{text(title)}</summary>{''.join(parts)}</details>"


def listing(remarks: Sequence[str]) -> str:
    """Return remarks, many of them folded."""
    lines = [aside(one) for one in remarks]
    many = len(lines) > MOST_OPEN
    return folded(f"{len(lines)} remarks", *lines) if many else "".join(lines)


def inert_json(data: Any) -> str:
    """Return JSON for a `script` element: no name in it can end the element or turn the text."""
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return _TURNING.sub(r"\\\\\1", plain).replace("<", "\\u003c")


def page(title: str, subtitle: str, sections: Mapping[str, str], *, data: Any, record: str) -> str:
    """Return the whole page with its sections by name, in order.

    Its script draws `data`. `record` is JSON of what the page was made from.
    """
    style = "".join((STATIC / name).read_text("utf-8") for name in ("uPlot.css", "report.css"))
    licence, uplot, own = (
        (STATIC / name).read_text("utf-8") for name in ("uPlot-LICENSE", "uPlot.js", "report.js")
    )
    scripts = [f"/*\n{licence}*/\n{uplot}", own]
    shown = {name: body for name, body in sections.items() if body}
    links = "".join(f'<a href="#{name}">{text(name)}</a>' for name in shown)
    inline = "\n".join(f"<script>{script}</script>" for script in scripts)
    known = {"record": record, "data": inert_json(data)}
    blocks = "\n".join(
        f'<script type="application/json" id="{name}">{content}</script>'
        for name, content in known.items()
    )
    filled = {
        "title": text(title), "subtitle": text(subtitle), "style": style, "links": links,
        "sections": "\n".join(shown.values()), "data": blocks, "scripts": inline,
        "of_style": _hash(style), "of_scripts": " ".join(map(_hash, scripts)),
    }  # fmt: skip
    return Template((STATIC / "page.html").read_text("utf-8")).substitute(filled)


def _hash(source: str) -> str:
    """Return the source of a content security policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
