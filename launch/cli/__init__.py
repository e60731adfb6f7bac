"""The command lines of the launcher's sub-commands.

Each action imports its command when it runs, so that `--help` answers at once.
"""

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
