"""`ditbench train seed`: write initial weights once, for runs of any layout to start from."""

import argparse
from pathlib import Path

import torch.distributed.checkpoint as dcp

from configs.errors import ConfigError
from configs.load import expect, load, to_tree
from configs.schema import Pretrain
from configs.yaml12 import dump_yaml
from train.engine.distributed import process_group, read_ranks
from train.model.build import build_network

SEED_CONFIG = "seed.yaml"  # beside the weights: the config that they were initialised from


def main(arguments: list[str]) -> int:
    """Write the seed checkpoint that the command line names."""
    parser = argparse.ArgumentParser(
        prog="ditbench train seed",
        description="Write the initial weights of a config. Runs that name the folder in "
        "model.init_from start from them, each rank reading its own part.",
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_args(arguments)
    config = expect(load(options.config, options.overrides), Pretrain, source=options.config)
    count = write_seed(config, options.folder)
    print(f"{options.folder}: {count:,} parameters of seed {config.seed}")
    return 0


def write_seed(config: Pretrain, folder: Path) -> int:
    """Write the initial weights of a config, and return the number of parameters."""
    if folder.exists():
        raise ConfigError(f"{folder}: exists already; name a new folder")
    network = build_network(config)
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    with process_group(read_ranks()):
        dcp.save({"network": weights}, checkpoint_id=folder)
    (folder / SEED_CONFIG).write_text(dump_yaml(to_tree(config)), encoding="utf-8")
    return sum(parameter.numel() for parameter in network.parameters())
