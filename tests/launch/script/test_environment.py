"""A batch script gets the variables that its user's shell had before ditbench was activated."""

import os
import sys
from pathlib import Path

from launch.script.environment import users_environment
from runs.folder import ROOT
from tests.real_runs import finished

OWN = {
    "PYTHONPATH": "/mine", "OMP_NUM_THREADS": "3", "VIRTUAL_ENV": "/my/venv", "LOGS": "/my/logs",
    "PATH": os.environ["PATH"], "HOME": "/home/me", "A_SECRET": "x y\nz",
}  # fmt: skip
FREE = {"PATH": os.environ["PATH"], "HOME": "/home/me"}


def activated(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment of a shell with these variables in which ditbench is activated."""
    given = variables | {"VENV": sys.prefix, "SITE": "local"}
    return printed(f"source {ROOT}/env/activate.sh && env -0", given)


def printed(script: str, variables: dict[str, str]) -> dict[str, str]:
    """Return the variables that a script with these variables prints by `env -0`."""
    done = finished("bash", "-c", script, env=variables)
    pairs = (pair.partition("=") for pair in done.stdout.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def test_variables_of_the_activation_are_undone() -> None:
    for variables in (OWN, FREE):
        found = users_environment(activated(variables))
        left = {name: found[name] for name in found.keys() - {"VENV", "SITE", "PWD", "SHLVL", "_"}}
        assert left == variables


def test_what_the_user_changes_after_the_activation_stays() -> None:
    now = activated(OWN)
    found = users_environment(now | {"LOGS": "/later", "PATH": f"/conda/bin:{now['PATH']}:/x"})
    assert found["LOGS"] == "/later"
    assert found["PATH"] == f"/conda/bin:{OWN['PATH']}:/x"
    assert found["OMP_NUM_THREADS"] == "3"


def test_what_the_command_itself_sets_is_undone() -> None:
    for variables in (OWN, OWN | {"PYTHONSAFEPATH": "x"}):
        own = {"ACTIVATED_SAFEPATH": variables.get("PYTHONSAFEPATH", ""), "PYTHONSAFEPATH": "1"}
        found = users_environment(activated(variables) | own)
        assert found.get("PYTHONSAFEPATH") == variables.get("PYTHONSAFEPATH")


def test_a_command_in_an_activated_shell_passes_on_the_path_of_before(tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/bash\nenv -0\n")
    python.chmod(0o755)
    (python.parent / "activate").write_text(
        f"VIRTUAL_ENV={python.parents[1]}\nPATH={python.parent}:$PATH\n"
    )
    given = OWN | {"VENV": str(python.parents[1]), "SITE": "local"}
    for before in (
        "",
        f"source {ROOT}/env/activate.sh; ",
        f"source {ROOT}/env/activate.sh; PATH=/x:$PATH; ",
    ):
        found = users_environment(printed(f"{before}bash {ROOT}/env/ditbench.sh status", given))
        assert found["PATH"] == ("/x:" if "/x" in before else "") + OWN["PATH"]
