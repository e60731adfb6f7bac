"""`ditbench train export`: write the newest weights of a run to one safetensors file."""

import argparse
import json
from pathlib import Path

from safetensors.torch import save_file

from configs.disk import replacing
from configs.errors import ConfigError
from configs.load import expect, to_tree
from configs.schema import Pretrain
from runs.folder import RunFolder, open_run
from train.engine.checkpoint import load_weights
from train.engine.distributed import process_group, read_ranks
from train.model.build import build_network


def main(arguments: list[str]) -> int:
    """Export the weights that the command line names."""
    parser = argparse.ArgumentParser(
        prog="ditbench train export", description="Write a run's newest weights to one file."
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("file", type=Path, help="a new .safetensors file")
    parser.add_argument("--weights", choices=("ema", "model"), default="ema")
    options = parser.parse_args(arguments)
    step = export(open_run(options.run), options.file, which=options.weights)
    print(f"{options.file}: {options.weights} weights of step {step}")
    return 0


def export(run: RunFolder, path: Path, *, which: str) -> int:
    """Write the `ema` or `model` weights of a run to `path`, and return their step.

    The metadata of the file hold the config, so that the network can be built without the run.
    """
    if path.suffix != ".safetensors" or path.exists() or not path.parent.is_dir():
        raise ConfigError(f"{path}: name a new file, ending in .safetensors, in an existing folder")
    config = expect(run.config(), Pretrain, source=run.path)
    network = build_network(config)
    with process_group(read_ranks()):
        step, images = load_weights(run.checkpoints, network, which=which)
    metadata = {"run": run.name, "weights": which, "step": str(step), "images": str(images)}
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    with replacing(path) as file:
        save_file(weights, file.name, metadata=metadata | {"config": json.dumps(to_tree(config))})
    return step
