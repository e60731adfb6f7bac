"""A process of another user of the machine, which attacks the ports of a run.

python -m tests.stranger MARKER PORT...

For every port it takes the listener for a store of PyTorch, and plants a pickle that creates the
file MARKER at every key it finds. It prints every store it found, one line of JSON each.
"""

import base64
import datetime
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NOBODY = 65534


class Bomb:
    """Unpickling it creates a file."""

    def __init__(self, marker: str) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mknod, (self._marker, 0o600)


def listening_ports(pids: Sequence[int]) -> list[int]:
    """Return the TCP ports on which the processes listen."""
    links = (link for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir())
    sockets = {os.readlink(link) for link in links if link.is_symlink()}
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    listens = [words for words in lines if words[3] == "0A" and f"socket:[{words[9]}]" in sockets]
    return sorted({int(words[1].rpartition(":")[2], 16) for words in listens})


def attack(marker: Path, ports: Sequence[int]) -> list[dict[str, Any]]:
    """Attack the ports from a process of another user; return the port and keys of every store."""
    command = [sys.executable, "-m", "tests.stranger", str(marker), *map(str, ports)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(marker: str, ports: list[str]) -> None:
    """Become another user, then attack each port from a process of its own."""
    from torch.distributed import TCPStore

    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    bomb = pickle.dumps(Bomb(marker))
    for port in ports:
        if os.fork():
            os.wait()
            continue
        # A listener that is no store never answers.
        signal.alarm(5)
        timeout = datetime.timedelta(seconds=2)
        store = TCPStore("127.0.0.1", int(port), timeout=timeout, wait_for_workers=False)
        keys = store.list_keys()
        for key in keys:
            # The rendezvous encodes its pickle; object collectives do not.
            store.set(key, base64.b64encode(bomb) if "rendezvous" in key else bomb)
        print(json.dumps({"port": int(port), "keys": keys}), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
