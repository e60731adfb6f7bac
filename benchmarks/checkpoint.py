"""The cost of a checkpoint: saving, starting an asynchronous save, loading; against torch.save.

    python -m benchmarks.checkpoint [--device cuda] [--width 384 --depth 12] [--rounds 9]

The state is that of training: weights, EMA and two moments in float32. The peer writes the same
tensors to one file with torch.save and fsync, and reads them with torch.load; it has no checksums
and no pointer, and several ranks could not share the writing. `begin` is the time that the loop
waits if the checkpoint is written while training goes on. Above 1, ours takes longer.
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from benchmarks.interleave import Stopwatch, conditions, interleave, parser, ratio, report
from configs.load import expect, resolve
from configs.schema import Pretrain
from train.engine.checkpoint import CheckpointSaver, CheckpointState, load_checkpoint
from train.engine.checkpoint_files import newest
from train.engine.clocks import Clocks
from train.engine.distributed import process_group, read_ranks
from train.engine.ema import EMA
from train.engine.numerics import LossScaler
from train.model.build import build_network
from train.pretrain.optimizer import make_optimizer


def main(arguments: list[str]) -> int:
    """Measure and print a report."""
    flags = parser(__doc__, rounds=9)
    flags.add_argument("--device", default="cpu", help="cpu or cuda")
    options = flags.parse_args(arguments)
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    model = {"width": options.width, "depth": options.depth, "heads": options.heads}
    data = {"source": "dummy", "size": 32, "channels": 4}
    tree = {"model": model, "data": data}
    config = expect(resolve(tree, source="benchmark"), Pretrain, source="benchmark")
    watch = Stopwatch(clock=options.clock, device=device)
    with tempfile.TemporaryDirectory() as folder, process_group(read_ranks()):
        trial = CheckpointArms(config, Path(folder), device)
        arms = {
            "save": trial.save,
            "begin": trial.begin,
            "end": trial.end,
            "load": trial.load,
            "torch.save": trial.peer_save,
            "torch.load": trial.peer_load,
        }
        seconds = interleave(arms, rounds=options.rounds, warmup=1, watch=watch)
    found = [
        ratio("save / torch.save", seconds["save"], seconds["torch.save"]),
        ratio("begin / save", seconds["begin"], seconds["save"]),
        ratio("load / torch.load", seconds["load"], seconds["torch.load"]),
    ]
    taken = conditions(device=device, options=options) | {"megabytes": round(trial.bytes / 1e6)}
    report(found, taken=taken, as_json=options.json)
    return 0


def state_of(network: nn.Module, config: Pretrain) -> CheckpointState:
    """Return the state of training a network, on its device."""
    ema = EMA(network, decay=0.9, warmup=False)
    return CheckpointState(
        network=network,
        ema=ema,
        optimizer=make_optimizer(network, config, ema),
        scaler=LossScaler(fp16=False),
        clocks=Clocks(next(network.parameters()).device),
    )


class CheckpointArms:
    """A training state and both ways of saving it."""

    def __init__(self, config: Pretrain, folder: Path, device: torch.device) -> None:
        network = build_network(config).to(device)
        self._state = state_of(network, config)
        self._folder, self._file = folder / "ours", folder / "peer.pt"
        self._saver = CheckpointSaver(self._folder, keep=1)
        self._asynchronous = CheckpointSaver(self._folder, keep=1, asynchronous=True)
        self.bytes = 4 * 4 * sum(parameter.numel() for parameter in network.parameters())
        self.save()
        self.peer_save()

    def save(self) -> None:
        """Save and wait."""
        self.end()
        self._saver.save(self._state)

    def begin(self) -> None:
        """Start an asynchronous save."""
        self.end()
        self._asynchronous.save(self._state)

    def end(self) -> None:
        """Wait for the asynchronous save."""
        self._asynchronous.wait()

    def load(self) -> None:
        """Find, check and load the newest checkpoint."""
        self.end()
        name = newest(self._folder)
        assert name is not None
        load_checkpoint(self._folder / name, self._state)

    def peer_save(self) -> None:
        """Write the same tensors to one file, with fsync."""
        with self._file.open("wb") as file:
            torch.save(self._state.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())

    def peer_load(self) -> None:
        """Read the file of the peer."""
        torch.load(self._file, weights_only=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
