"""The environment of the user's shell, as it was before ditbench was activated in it."""

import base64
import gzip
import os
from collections.abc import Mapping

from runs.slurm_env import first_environment


def users_environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a batch script gets: its user's.

    env/activate.sh keeps all variables as they were before and after it. What still has its value
    after it gets that before it; of a list that has grown since, such as PATH, the middle does.
    """
    now = dict(first_environment() if given is None else given)
    before, after = (_unpacked(now.pop(f"ACTIVATED_{when}", "")) for when in ("BEFORE", "AFTER"))
    # What env/ditbench.sh changes by itself: PATH, as it was before, and a flag of Python.
    if (path := now.get("ACTIVATED_PATH")) is not None:
        now["PATH"] = path
    if (safe_path := now.get("ACTIVATED_SAFEPATH")) is not None:
        del now["PYTHONSAFEPATH"]
        now |= {"PYTHONSAFEPATH": safe_path} if safe_path else {}
    for name in before.keys() | after.keys():
        was, set_to = before.get(name), after.get(name)
        if was == set_to or (name in now and set_to is None):
            continue
        if now.get(name) != set_to:
            if was is not None and set_to is not None and name in now:
                now[name] = now[name].replace(set_to, was)
        elif was is None:
            del now[name]
        else:
            now[name] = was
    return {name: value for name, value in now.items() if not name.startswith("ACTIVATED")}


def _unpacked(text: str) -> dict[str, str]:
    content = gzip.decompress(base64.b64decode(text)) if text else b""
    pairs = (os.fsdecode(pair).partition("=") for pair in content.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}
