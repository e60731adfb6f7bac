"""Find a value in a batch script and replace it, and mark where the flags of a resume belong.

Nothing is guessed: a name that does not occur exactly once is an error that lists its lines. No
shell is parsed: comments and here-documents are blanked, and a value must be plain or quoted text,
or a variable that the script itself sets once.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from launch.lint.commands import is_work, work_begins
from launch.lint.script import parse_script, without_comment, without_documents

SEED_NAMES = (
    "--seed", "--global-seed", "--global_seed", "--random-seed", "--random_seed", "--manual-seed",
    "--manual_seed", "seed", "SEED", "training.seed", "trainer.seed", "train.seed",
)  # fmt: skip
_PLAIN = r"[\w.,:/+=@%^-]+"
_VARIABLE = r"\$(?:\{(?P<braced>\w+)\}|(?P<bare>\w+))"
_DEFAULT = r"\$\{(?P<default>\w+):?[-=](?P<fallback>[^}]*)\}"
_VALUE = (
    rf"(?P<value>(?P<quote>[\"']?)(?:{_VARIABLE}|{_DEFAULT}|{_PLAIN}|(?<=\")[^\"\\$`]*|(?<=')[^']*)"
    r"(?P=quote))(?=[\s;&|<>()\"'`\\]|$)"
)
_OPERATOR = re.compile(r"\d*[<>]|[|;&]")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Variation:
    """A script with a value in its place, or a variable to export before it runs."""

    text: str
    exports: dict[str, str]


def vary(text: str, name: str, value: str, *, path: Path) -> Variation:
    """Return a script in which a flag, a `key=value` or a variable `name` has another value."""
    found = _value_of(text, name, path=path)
    if found is None:
        _check_is_read(text, name, path=path)
        return Variation(text=text, exports={name: value})
    line = text.count("\n", 0, found.start("value")) + 1
    if found["default"] == name:
        return Variation(text=text, exports={name: value})
    begin, end = found.span("value")
    new = value if re.fullmatch(_PLAIN, value) else shlex.quote(value)
    if new != value and _is_in_quotes(text, begin):
        raise ConfigError(f"{path}, line {line}: {name} stands in quotes; {value!r} does not fit")
    return Variation(text=text[:begin] + new + text[end:], exports={})


def present_value(text: str, name: str, *, path: Path) -> str:
    """Return the text that `name` has now, "" if it is not set in the script."""
    found = _value_of(text, name, path=path)
    return "" if found is None else (found["fallback"] or found["value"]).strip("\"'")


def seed_name(text: str, *, path: Path) -> str:
    """Return the one name by which the script sets its seed; ask if there is not exactly one."""
    code = _code(text)
    found = [name for name in SEED_NAMES if _occurrences(code, name)]
    if len(found) > 1 and {name.lstrip("-").lower() for name in found} == {"seed"}:
        # `--seed $SEED` beside `SEED=1`: the flag leads to the variable.
        found = [name for name in found if name == "--seed"] or found
    if len(found) == 1:
        return found[0]
    shown = f"finds {', '.join(found)}: name one by --vary {found[0]}=0,1,2" if found else (
        f"finds no flag of a seed ({', '.join(SEED_NAMES[:5])}, seed=): write one with its value "
        "into the script, or use --repeats, which does not change the seed"
    )  # fmt: skip
    raise ConfigError(f"{path}: --seeds {shown}")


def mark_resume(text: str, mark: str, *, path: Path) -> str:
    """Return a script with `mark` behind the arguments of its last command of work."""
    begin, end = _work(text, path=path)
    code = _QUOTED.sub(lambda found: "_" * len(found[0]), text[begin:end])
    if re.search(r"\b(?:ba|z|da|k)?sh\s+-l?c\b", code):
        line = text.count("\n", 0, begin) + 1
        raise ConfigError(
            f"{path}, line {line}: --resume: the program is started inside quotes (bash -c), where "
            "no flags can be added; write the line without bash -c"
        )
    stop = _OPERATOR.search(code)
    at = begin + len(code[: stop.start() if stop else len(code)].rstrip(" \t\n\\"))
    return f"{text[:at]} {mark}{text[at:]}"


def _work(text: str, *, path: Path) -> tuple[int, int]:
    """Return where the last command of work begins and where its last line ends."""
    script = parse_script(text, path=path)
    works = [line for line in script.lines if is_work(line)]
    if not works:
        raise ConfigError(
            f"{path}: --resume: finds no line that starts the program (python, torchrun, "
            "accelerate launch, srun); the flags belong to none"
        )
    lines = text.split("\n")
    first = last = works[-1].number - 1
    while lines[last].endswith("\\") and last + 1 < len(lines):
        last += 1
    begin = sum(len(line) + 1 for line in lines[:first])
    code = "\n".join(_code(text).split("\n")[first : last + 1])
    return begin + (work_begins(code) or 0), begin + len(code.rstrip())


def _value_of(text: str, name: str, *, path: Path) -> re.Match[str] | None:
    """Return the one place of a name's value, through variables; None if the script sets none."""
    code = _code(text)
    found, seen = _one(code, name, path=path), {name}
    while found is not None and (variable := found["braced"] or found["bare"]):
        if variable in seen:
            break
        seen.add(variable)
        inner = _one(code, variable, path=path)
        if inner is None:
            raise ConfigError(
                f"{path}: {name} is ${variable}, which the script does not set; vary {variable}="
            )
        found = inner
    return found


def _one(code: str, name: str, *, path: Path) -> re.Match[str] | None:
    places = _occurrences(code, name)
    if len(places) > 1:
        lines = ", ".join(str(code.count("\n", 0, place) + 1) for place in places)
        raise ConfigError(
            f"{path}: {name} occurs in lines {lines}: which one is meant? Let both take one "
            "variable that the script sets once, and vary that"
        )
    if not places:
        return None
    found = re.compile(_VALUE).match(code, places[0])
    if found is None or not found["value"]:
        line = code.count("\n", 0, places[0]) + 1
        raise ConfigError(
            f"{path}, line {line}: the value of {name} is not plain text or a variable"
        )
    return found


def _occurrences(code: str, name: str) -> list[int]:
    """Return where the values of a name begin."""
    if name.startswith("-"):
        pattern = rf"(?<![\w./$-]){re.escape(name)}(?:=|(?:[ \t]|\\\n)+|(?=[\s;&|]|$))"
    else:
        pattern = rf"(?:(?<=[\s;&|(\"'+])|^){re.escape(name.lstrip('+'))}\+?="
        # Further ways in which a shell sets a variable; their value is not plain.
        pattern += rf"|\bfor\s+{re.escape(name)}\s+in|\bread\b[^\n;]*\s{re.escape(name)}\b"
    return [found.end() for found in re.finditer(pattern, code, re.MULTILINE)]


def _check_is_read(text: str, name: str, *, path: Path) -> None:
    """Raise `ConfigError` for a name that is no variable that the script reads."""
    is_variable = re.fullmatch(r"[A-Za-z_]\w*", name)
    if not is_variable or not re.search(rf"\$\{{?{name}\b", _code(text)):
        raise ConfigError(
            f"{path}: {name} does not occur in the script; write it with its present value into "
            "the line that starts the program, and vary it then"
        )


def _code(text: str) -> str:
    """Return the text with comments and here-documents blanked, every character in its place."""
    lines: Sequence[str] = text.split("\n")
    kept = without_documents([*lines])
    return "\n".join(
        without_comment(code).ljust(len(line)) for code, line in zip(kept, lines, strict=True)
    )


def _is_in_quotes(text: str, at: int) -> bool:
    """Return whether a place may be inside quotes: an odd number of them stands before it."""
    before = _code(text)[:at]
    return any(before.count(quote) % 2 or quote in before.rpartition("\n")[2] for quote in "\"'")
