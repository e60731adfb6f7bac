"""Parts of a self-contained HTML page: text is escaped, nothing is fetched, no style is inline."""

import base64
import hashlib
import html
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from configs.table import formatted, heading, is_number
from configs.terminal import printable

LONGEST_UNBROKEN = 22
STYLE = """
:root{color-scheme:light dark}
:root{--ink:#1d2733;--soft:#5b6b7c;--line:#dfe5ec;--paper:#fff;--back:#f4f6f9;--mark:#1f5fbf}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
header,main,footer{max-width:1240px;margin:0 auto;padding:0 24px}
header{padding-top:40px}h1{margin:0 0 4px;font-size:28px;letter-spacing:-.02em}
header p,footer{color:var(--soft)}footer{padding:8px 24px 48px;font-size:13px}
nav{margin:14px 0 26px}
nav a{display:inline-block;margin-right:18px;color:var(--mark);text-decoration:none}
section{background:var(--paper);border:1px solid var(--line);border-radius:10px;
padding:20px 24px 24px;margin:0 0 20px}
h2{margin:0 0 12px;font-size:18px}h3{margin:18px 0 6px;font-size:15px}
.verdicts{padding:0;margin:0;list-style:none}
.verdicts li{padding:10px 14px;margin:0 0 8px;border-left:4px solid var(--mark);
background:var(--back);border-radius:0 6px 6px 0}
.verdicts b{font-variant-numeric:tabular-nums}
.aside{color:var(--soft);font-size:13px;margin:6px 0 0}
/* A shade at an edge says that a table goes on behind it. */
.wide{overflow-x:auto;background:linear-gradient(90deg,var(--paper) 50%,transparent) 0/40px 100%,
linear-gradient(270deg,var(--paper) 50%,transparent) 100%/40px 100%,
linear-gradient(90deg,var(--line),transparent) 0/16px 100%,
linear-gradient(270deg,var(--line),transparent) 100%/16px 100%;
background-repeat:no-repeat;background-attachment:local,local,scroll,scroll}
table{border-collapse:collapse;font-size:13.5px;width:100%}
th{color:var(--soft);font-weight:600;text-align:left;border-bottom:2px solid var(--line)}
th,td{padding:5px 14px 5px 0;vertical-align:top}th{vertical-align:bottom}
td{border-bottom:1px solid var(--line);white-space:nowrap}
.w{min-width:11em;overflow-wrap:anywhere;white-space:normal}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.badge{border-left:4px solid var(--soft);padding-left:6px}.badge::before{content:"? "}
.good{border-color:#2c8a4b}.good::before{content:"\\2713  "}
.bad{border-color:#c8372d}.bad::before{content:"\\2717  "}
td a{color:inherit;text-decoration:underline dotted var(--soft)}
figure{margin:14px 0 0}figure svg{width:100%;max-width:860px;height:auto;display:block}
figcaption{color:var(--soft);font-size:13px;margin:4px 0 14px}
.grids{display:grid;grid-template-columns:repeat(auto-fill,minmax(220px,1fr));gap:16px}
.grids img{width:100%;image-rendering:pixelated;border:1px solid var(--line);border-radius:6px}
figure svg,figure img{background:#fff;border-radius:6px;max-width:100%}
details{color:var(--soft);font-size:13px}summary{cursor:pointer}code{overflow-wrap:anywhere}
@media print{body{background:#fff}section{border:0;padding:0}nav{display:none}
figure,tr{break-inside:avoid}
header,main,footer{padding:0}table{font-size:9px}.wide{overflow:visible;background:none}
th,td{padding:3px 5px 3px 0;min-width:0!important}td:not(.n){white-space:normal}
h2,h3{break-after:avoid}}
@media (max-width:700px){header,main,footer{padding:0 8px}section{padding:12px 10px}
table{font-size:11px}th,td{padding-right:7px}td.w{min-width:16em}
figure{overflow-x:auto}figure svg{min-width:620px}}
@media screen and (prefers-color-scheme:dark){:root{--ink:#dde4ec;--soft:#9aa8b7;--line:#34404d;
--paper:#1b232c;--back:#12181f;--mark:#7db0f5}
figure svg{filter:invert(.89) hue-rotate(180deg)}}
"""


def text(value: object) -> str:
    """Return a value as escaped text."""
    return html.escape(printable(str(value)))


def table(
    rows: Sequence[Mapping[str, Any]], *, link: Callable[[str, Any], str | None] | None = None
) -> str:
    """Return rows as HTML without empty columns; `link(column, row)` may return a cell's source."""
    names = dict.fromkeys(name for row in rows for name in row)
    heads = [name for name in names if any(row.get(name) is not None for row in rows)]
    numeric = {head for head in heads if all(is_number(row.get(head)) for row in rows)}
    top = "".join(
        f'<th scope="col"{_class(head in numeric, head)}>{_breakable(heading(head))}</th>'
        for head in heads
    )
    lines = [
        "".join(_cell(row, head, number=head in numeric, link=link) for head in heads)
        for row in rows
    ]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    head = f"<thead>\n<tr>{top}</tr>\n</thead>"
    return f'<div class="wide"><table>\n{head}\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _breakable(name: str) -> str:
    """Return a name such as `train.global_batch` with places where a line may end."""
    return re.sub("([._])", r"\1<wbr>", text(name))


def _class(number: bool, content: str) -> str:
    return ' class="n"' if number else ' class="w"' if len(content) > LONGEST_UNBROKEN else ""


# The classes of words that judge, in a column of states or verdicts.
_BADGES = {
    **dict.fromkeys(("agrees", "done", "faster", "same", "equivalent", "better"), "good"),
    **dict.fromkeys(("disagrees", "failed", "slower", "different", "worse", "lost"), "bad"),
    **dict.fromkeys(("undecidable", "undetermined", "inconclusive"), "open"),
}


def _cell(row: Mapping[str, Any], head: str, *, number: bool, link: Any) -> str:
    value = row.get(head)
    content = text(formatted(value))
    if head.endswith(("state", "verdict")) and (kind := _BADGES.get(content.split(" ")[0])):
        content = f'<span class="badge {kind}">{content}</span>'
    address = link(head, row) if link and value is not None else None
    if address:
        content = f'<a href="{html.escape(address)}">{content}</a>'
    return f"<td{_class(number, formatted(value))}>{content}</td>"


def section(name: str, title: str, *parts: str) -> str:
    """Return a titled part of the page that the navigation links to."""
    inside = "\n".join(part for part in parts if part)
    return f'<section id="{name}">\n<h2>{text(title)}</h2>\n{inside}\n</section>'


def aside(remark: str) -> str:
    """Return a remark in small print."""
    return f'<p class="aside">{text(remark)}</p>'


def figure(svg: str, caption: str) -> str:
    """Return a plot of matplotlib inline, with its caption."""
    clean = re.sub(_NOT_DRAWN, "", svg, flags=re.DOTALL).strip()
    clean = re.sub(r' style="([^"]*)"', _as_attributes, clean)
    described = f'<svg role="img" aria-label="{text(caption)}" stroke-linejoin="round"'
    clean = clean.replace("<svg", described, 1)
    return f"<figure>{clean}<figcaption>{text(caption)}</figcaption></figure>"


_NOT_DRAWN = r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<style.*?</style>"


def _as_attributes(style: re.Match[str]) -> str:
    """Return an inline style as attributes: the page's policy forbids styles that have no hash."""
    rules = [rule.split(":", 1) for rule in html.unescape(style[1]).split(";") if ":" in rule]
    return "".join(f' {name.strip()}="{html.escape(value.strip())}"' for name, value in rules)


def _hash(source: str) -> str:
    """Return the source of a content security policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def page(
    title: str,
    subtitle: str,
    sections: Mapping[str, str],
    *,
    style: str = STYLE,
    above: str = "",
    script: str = "",
    data: str = "",
) -> str:
    """Return the whole page with its sections by name, in order.

    `above` stands over the title. `script` is the only inline script that may run; it may load
    others, which find JSON in `data`.
    """
    names = [(name, body) for name, body in sections.items() if body]
    links = "".join(f'<a href="#{name}">{text(name)}</a>' for name, _ in names)
    bodies = "\n".join(body for _, body in names)
    policy = f"default-src 'none'; style-src {_hash(style)}; img-src data:"
    if script:
        policy += f" 'self'; script-src {_hash(script)} 'strict-dynamic'"
        # A name in the data cannot end the element.
        inert = data.replace("<", "\\u003c")
        bodies += f'\n<script type="application/json" id="data">{inert}</script>'
        bodies += f"\n<script>{script}</script>"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="{policy}; base-uri 'none'; form-action 'none'">
<link rel="icon" href="data:,">
<title>{text(title)}</title>
<style>{style}</style>
</head>
<body>
<header>{above}<h1>{text(title)}</h1><p>{text(subtitle)}</p><nav>{links}</nav></header>
<main>
{bodies}
</main>
<footer>Intervals are 95 %. Rates are medians over steady intervals; each names its clock.
A ratio is taken within one clock only. Numbers link to their file and line.</footer>
</body>
</html>
"""
