"""Check the site: its modules and its virtualenv, activated as in a job."""

import subprocess
from collections.abc import Iterator

from launch.plan.result import CheckResult, failure, passed
from launch.submit.script import RunRequest
from launch.submit.site import site_environment
from runs.folder import ROOT

_TIMEOUT_S = 180
# Older module systems exit with 0 even if they fail.
_NO_MODULE = ("unable to locate", "modulefile", "unknown", "error:")

_MODULES = """
source "$1/env/site.sh" && read_site "$1/env/sites" || exit
echo "${MODULES[*]-}"
load_modules
"""
_TORCH = """
source "$1/env/activate.sh" || exit
python -c 'import sys, torch; print(torch.__version__, sys.prefix)'
"""


def site_checks(request: RunRequest) -> Iterator[CheckResult]:
    """Check what takes seconds and is the same for all runs of a site."""
    yield from modules(request)
    yield from virtualenv(request)


def modules(request: RunRequest) -> Iterator[CheckResult]:
    """Check that the modules of the site can be loaded."""
    done = _shell(_MODULES, request)
    names = done.stdout.splitlines()[0] if done.stdout.strip() else ""
    message = done.stderr.strip()
    file = f"env/sites/{request.site.name}.sh"
    if done.returncode or any(word in message.lower() for word in _NO_MODULE):
        yield failure("modules", message or "they cannot be loaded", f"correct MODULES in {file}")
    elif names:
        yield passed("modules", f"{names} load")
    else:
        yield passed("modules", f"{file} names none")


def virtualenv(request: RunRequest) -> Iterator[CheckResult]:
    """Check that Python imports torch after env/activate.sh."""
    done = _shell(_TORCH, request)
    if done.returncode == 0:
        version, _, prefix = done.stdout.strip().splitlines()[-1].partition(" ")
        yield passed("virtualenv", f"{prefix}, torch {version}")
    elif "torch" in done.stderr:
        last = done.stderr.strip().splitlines()[-1]
        yield failure("virtualenv", f"torch cannot be imported: {last}", "env/create.sh")
    else:
        yield failure("virtualenv", done.stderr.strip() or "activation fails", "env/create.sh")


def _shell(script: str, request: RunRequest) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["bash", "-c", script, "bash", str(ROOT)],
            env=site_environment(request.site.name),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"no answer within {_TIMEOUT_S} s"
        return subprocess.CompletedProcess(args=[], returncode=1, stdout="", stderr=message)
