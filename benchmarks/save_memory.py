"""The host memory that an asynchronous save takes on each of several DDP ranks.

    torchrun --nproc-per-node=2 -m benchmarks.save_memory [--width 384 --depth 12]

The state is that of training: weights, EMA and two moments in float32, the same on every rank. Ours
stages on each rank the tensors that it will write, DCP by itself all that the rank holds. Prints,
in MB for each rank, how much its resident memory grows until the save is done.
"""

import ctypes
import os
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

from benchmarks.checkpoint import state_of
from benchmarks.interleave import parser
from configs.load import expect, resolve
from configs.schema import Pretrain
from train.engine import checkpoint_files
from train.engine.checkpoint import CheckpointSaver, CheckpointState
from train.engine.distributed import from_every_rank, from_rank_0, process_group, read_ranks
from train.model.build import build_network


def main(arguments: list[str]) -> int:
    """Measure both ways; print a line for each on rank 0."""
    options = parser(__doc__, rounds=3).parse_args(arguments)
    torch.set_num_threads(1)
    model = {"width": options.width, "depth": options.depth, "heads": options.heads}
    data = {"source": "dummy", "size": 32, "channels": 4}
    tree = {"model": model, "data": data}
    config = expect(resolve(tree, source="benchmark"), Pretrain, source="benchmark")
    with tempfile.TemporaryDirectory() as own, process_group(read_ranks()):
        folder = Path(from_rank_0(own))
        network = build_network(config)
        state = state_of(network, config)
        size = 16 * sum(parameter.numel() for parameter in network.parameters())
        with mock.patch.object(checkpoint_files, "own_share", lambda whole, _: whole):
            whole = growth(state, folder / "whole", rounds=options.rounds)
        ours = growth(state, folder / "ours", rounds=options.rounds)
        if dist.get_rank() == 0:
            print(f"state {size / 1e6:.0f} MB; ours {ours}, all that a rank holds {whole}")
        dist.barrier()
    return 0


def growth(state: CheckpointState, folder: Path, *, rounds: int) -> list[int]:
    """Return the largest growth of each rank's memory by a save, in MB."""
    saver, most = CheckpointSaver(folder, keep=1, asynchronous=True), 0
    for _ in range(rounds):
        ctypes.CDLL(None).malloc_trim(0)  # give back what an earlier save has freed
        before = _resident_bytes()
        saver.save(state)
        while not saver.finished():
            most = max(most, _resident_bytes() - before)
            time.sleep(0.01)
    return [round(each / 1e6) for each in from_every_rank(most)]


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
