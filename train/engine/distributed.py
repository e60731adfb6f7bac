"""The ranks of a run: their placement by torchrun, the device mesh, and small collectives."""

import datetime
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from configs.checks.batch import BatchLayout
from configs.checks.compute_node import nvidia_driver
from configs.errors import ConfigError
from runs.slurm_env import has_gpus, node_name
from runs.state.reasons import find_reason
from train.engine.unpickler import DcpUnpickler

# The variables that torchrun sets for a rank. A child process that is no rank must not see them.
TORCHRUN_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip

# The file of agents and ranks that share a machine (jobs/agents.sh), and this group's part of it.
AGENT_STORE = "AGENT_STORE"

# The first step may compile, and ranks compile at different speeds.
_TIMEOUT = datetime.timedelta(minutes=20)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process's rank, the world size and the device."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    device: torch.device


def read_ranks() -> Ranks:
    """Return the placement that torchrun gave this process; without torchrun, one rank alone.

    Raise `ConfigError` if there are GPUs and torch can use none of them.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    if not cuda:
        _check_that_no_gpu_is_idle()
    elif local_rank >= (visible := torch.cuda.device_count()):
        raise ValueError(f"local rank {local_rank} has no GPU: {visible} are visible")
    return Ranks(
        rank=rank_number(),
        world=world_size(),
        local_rank=local_rank,
        local_world=local_world,
        device=torch.device("cuda", local_rank) if cuda else torch.device("cpu"),
    )


def _check_that_no_gpu_is_idle() -> None:
    driver = nvidia_driver()
    gpus = has_gpus()
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or not (
        gpus or (gpus is None and driver)
    ):
        return
    try:
        torch.cuda.init()
        cause = "its kernel module reports no GPU"
    except (AssertionError, RuntimeError) as error:
        if find_reason(str(error), among=["node"]):
            raise
        cause = str(error).partition("\n")[0]
    raise ConfigError(
        f"{node_name()} has GPUs and torch {torch.__version__} uses none of them (NVIDIA driver "
        f"{driver or 'not loaded'}): {cause}. Name a build of torch for this "
        "driver in env/sites/<cluster>.sh (TORCH, TORCH_INDEX) and run env/create.sh again; to "
        "train on the CPU, set CUDA_VISIBLE_DEVICES to nothing"
    )


def rank_number() -> int:
    """Return the rank that torchrun gave this process; without torchrun, 0."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Return the number of ranks that torchrun started; without torchrun, 1."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def end_rank(status: int) -> int:
    """Return the exit `status`, but exit at once if this rank failed among others.

    Threads and communicators that wait for the other ranks would hold up the interpreter's exit.
    """
    if status and world_size() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


@contextmanager
def process_group(ranks: Ranks) -> Iterator[None]:
    """Join all ranks in a process group: NCCL for GPU tensors, gloo for CPU tensors.

    A rank that fails among others leaves without ending the group: NCCL would first wait for
    collectives that never finish.
    """
    if ranks.device.type == "cuda":
        torch.cuda.set_device(ranks.device)
    # Without `device_id`, which would make a communicator of all ranks at once: nothing uses one.
    # DCP exchanges plans as pickles, and nobody has to prove who they are to gloo's sockets.
    distributed_c10d._unpickler = DcpUnpickler
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if ranks.device.type == "cuda" else "gloo",
        timeout=_TIMEOUT,
        rank=ranks.rank,
        world_size=ranks.world,
        store=dist.PrefixStore("group", bootstrap_store(ranks)),
    )
    done = ranks.world == 1
    try:
        yield
        # Without a barrier one gloo teardown in six aborts, because a peer has already closed.
        dist.barrier()
        done = True
    finally:
        if done:
            dist.destroy_process_group()


def bootstrap_store(ranks: Ranks) -> dist.Store:
    """Return a key-value store that all ranks share before there is a process group."""
    if ranks.world == 1:
        return dist.HashStore()
    if AGENT_STORE in os.environ:
        store: dist.Store = dist.FileStore(os.environ[AGENT_STORE])
        store.set_timeout(_TIMEOUT)
    else:
        store, _, _ = next(rendezvous("env://", timeout=_TIMEOUT))
    return dist.PrefixStore("ranks", store)


def data_rank(ranks: Ranks, layout: BatchLayout) -> int:
    """Return the number of this rank's share of the images; a tensor group has one share."""
    return ranks.rank // layout.tensor


def make_mesh(layout: BatchLayout, device: torch.device) -> DeviceMesh:
    """Return the (replicate, shard, tensor) mesh over all ranks; `tensor` varies fastest."""
    shape = (layout.replicate, layout.shard, layout.tensor)
    return init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard", "tensor"))


class Agreement:
    """The largest vote of all ranks, one step late, so that no step waits for the result."""

    def __init__(self) -> None:
        self._pending: tuple[Tensor, dist.Work] | None = None

    def vote(self, mine: int) -> int:
        """Cast this step's vote; return the result of the step before (0 at first). Collective."""
        agreed = self.settle()
        ballot = torch.tensor([mine])
        work = dist.all_reduce(ballot, op=dist.ReduceOp.MAX, async_op=True)
        assert work is not None
        self._pending = ballot, work
        return agreed

    def settle(self) -> int:
        """Return the result of the vote in progress, or 0 if there is none. Collective."""
        if self._pending is None:
            return 0
        ballot, work = self._pending
        work.wait()
        self._pending = None
        return int(ballot.item())


def max_over_ranks(mine: int) -> int:
    """Return the largest value of all ranks. Collective."""
    agreement = Agreement()
    agreement.vote(mine)
    return agreement.settle()


def sum_over_ranks(values: Tensor) -> Tensor:
    """Return the sum of `values` over all ranks, on the CPU. Collective.

    It goes over gloo: for sums alone, NCCL's communicator of all ranks would take GPU memory.
    """
    total = values.cpu()
    dist.all_reduce(total)
    return total


def from_rank_0(thing: Any) -> Any:
    """Return rank 0's argument on every rank, as JSON keeps it. Collective."""
    return from_every_rank(thing if dist.get_rank() == 0 else None)[0]


def from_every_rank(thing: object) -> list[Any]:
    """Return the arguments of all ranks, in order, on every rank, as JSON keeps them. Collective.

    Object collectives would unpickle, and run, whatever arrives.
    """
    mine = torch.frombuffer(bytearray(json.dumps(thing).encode()), dtype=torch.uint8)
    return [json.loads(part.numpy().tobytes()) for part in gather_rows(mine)]


def gather_rows(rows: Tensor) -> list[Tensor]:
    """Return the CPU tensors `[N, ...]` of all ranks, in order; only N may differ. Collective."""
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    most = max(int(count) for count in counts)
    padded = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])])
    gathered = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(gathered, padded)
    return [part[: int(count)] for part, count in zip(gathered, counts, strict=True)]
