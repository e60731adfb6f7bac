"""A checkpoint is complete or absent, and holds everything that the next step depends on."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint import staging

from configs.errors import ConfigError
from configs.load import load
from runs.records import Superseded
from train.engine import checkpoint
from train.engine.checkpoint import CheckpointSaver, CheckpointState, load_newest, load_weights
from train.engine.checkpoint_files import complete, newest, own_share
from train.engine.clocks import Clocks
from train.engine.ema import EMA
from train.engine.failure import RunFailure, reason_of
from train.engine.metrics import IntervalSums
from train.model.build import build_network
from train.pretrain.optimizer import make_optimizer

SMALL = ["model.width=32", "model.depth=1", "model.heads=2"]


pytestmark = pytest.mark.usefixtures("group")


def make_state(seed: int = 0) -> tuple[CheckpointState, torch.nn.Module, EMA]:
    config = load(Path("configs/pretrain/digits.yaml"), [*SMALL, f"seed={seed}"])
    network = build_network(config)
    average = EMA(network, decay=0.9, warmup=False)
    optimizer = make_optimizer(network, config)
    for _ in range(2):
        for parameter in network.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        average.update(1)
    clocks = Clocks(torch.device("cpu"))
    clocks.seconds["train"] = 12.5
    state = CheckpointState(network=network, parts=[average], optimizer=optimizer, clocks=clocks)
    state.step, state.images = 7, 900
    state.interval = IntervalSums(loss=0.1 + seed, steps=seed)
    return state, network, average


def save(folder: Path, state: CheckpointState, *, keep: int) -> None:
    CheckpointSaver(folder, keep=keep).save(state)


def save_and_wait(saver: CheckpointSaver, state: CheckpointState) -> None:
    saver.save(state)
    saver.wait()


def tensors(tree: object, prefix: str = "") -> dict[str, torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return {prefix: tree}
    assert isinstance(tree, dict)
    return {
        k: v for name, part in tree.items() for k, v in tensors(part, f"{prefix}/{name}").items()
    }


def test_the_whole_state_is_restored_bit_for_bit(tmp_path: Path) -> None:
    saved, *_ = make_state(seed=1)
    save(tmp_path, saved, keep=2)
    loaded, *_ = make_state(seed=2)
    loaded._clocks.seconds["train"] = 0.5
    assert load_newest(tmp_path, loaded)
    before, after = tensors(saved.state_dict()), tensors(loaded.state_dict())
    assert before.keys() == after.keys()
    assert after.pop("/clocks/train") == 13.0
    before.pop("/clocks/train")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert {name.split("/")[1] for name in before} == {
        "network", "average", "optimizer", "progress", "clocks", "interval",
    }  # fmt: skip


def test_of_copies_on_several_ranks_each_is_staged_by_one_of_them_in_even_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, *_ = make_state()
    whole = tensors(state.state_dict())
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    shares = []
    for rank in range(3):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        shares.append(tensors(own_share(state.state_dict(), {})))
    names = [name for share in shares for name in share]
    assert sorted(names) == sorted(whole)
    sizes = [sum(tensor.nbytes for tensor in share.values()) for share in shares]
    assert max(sizes) - min(sizes) <= max(tensor.nbytes for tensor in whole.values())


def test_without_a_checkpoint_nothing_is_loaded(tmp_path: Path) -> None:
    state, *_ = make_state()
    assert not load_newest(tmp_path / "checkpoints", state)
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        load_weights(tmp_path, build_network(load(Path("configs/pretrain/digits.yaml"), SMALL)))


def test_the_newest_few_are_kept_and_the_pointer_names_the_last(tmp_path: Path) -> None:
    state, *_ = make_state()
    for step in (1, 2, 3, 10):
        state.step = step
        save(tmp_path, state, keep=2)
    assert complete(tmp_path) == ["step-000000003", "step-000000010"]
    assert newest(tmp_path) == "step-000000010"


def test_a_partial_checkpoint_of_a_crash_is_neither_read_nor_kept(tmp_path: Path) -> None:
    state, *_ = make_state()
    save(tmp_path, state, keep=2)
    half = tmp_path / "step-000000009.partial"
    half.mkdir()
    (half / ".metadata").write_bytes(b"half")
    assert newest(tmp_path) == "step-000000007"
    state.step = 8
    save(tmp_path, state, keep=2)
    assert not half.exists()


@pytest.mark.parametrize("pointer", [None, "", "step-000000099\n", "\x00rubbish"])
def test_a_missing_or_damaged_pointer_falls_back_to_the_last_complete_checkpoint(
    tmp_path: Path, pointer: str | None
) -> None:
    state, *_ = make_state()
    save(tmp_path, state, keep=2)
    (tmp_path / "latest").unlink()
    if pointer is not None:
        (tmp_path / "latest").write_text(pointer)
    assert newest(tmp_path) == "step-000000007"


def test_the_same_step_saved_again_replaces_it(tmp_path: Path) -> None:
    state, network, _ = make_state()
    save(tmp_path, state, keep=2)
    with torch.no_grad():
        network.patches_in.bias.fill_(5)
    save(tmp_path, state, keep=2)
    other, loaded, _ = make_state()
    load_newest(tmp_path, other)
    assert bool((loaded.patches_in.bias == 5).all())
    assert complete(tmp_path) == ["step-000000007"]


def test_the_ema_weights_can_be_loaded_alone(tmp_path: Path) -> None:
    state, network, average = make_state()
    save(tmp_path, state, keep=1)
    assert load_weights(tmp_path, network) == (7, 900)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, average.weights[name])


def flip_bit(file: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-2])


def holding(text: str) -> Callable[[Path], None]:
    return lambda file: file.write_text(text) and None


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *itertools.product(
            ["__0_0.distcp", ".metadata", "checksums.json"], [flip_bit, truncate, Path.unlink]
        ),
        *(("checksums.json", holding(text)) for text in ("", "{}", "null", "[]", '{".x": null}')),
    ],
)
def test_a_damaged_checkpoint_is_quarantined_and_the_one_before_is_loaded(
    tmp_path: Path, damage: Callable[[Path], None], name: str
) -> None:
    saved, *_ = make_state()
    for step in (7, 8):
        saved.step = step
        save(tmp_path, saved, keep=2)
    damage(tmp_path / "step-000000008" / name)
    loaded, *_ = make_state(seed=1)
    assert load_newest(tmp_path, loaded)
    assert loaded.step == 7
    assert (tmp_path / "step-000000008.damaged").exists()
    saved.step = 9
    save(tmp_path, saved, keep=2)
    assert complete(tmp_path)[-1] == "step-000000009"


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_over(tmp_path: Path) -> None:
    saved, *_ = make_state()
    save(tmp_path, saved, keep=2)
    flip_bit(tmp_path / "step-000000007" / "__0_0.distcp")
    with pytest.raises(RunFailure, match="all checkpoints are damaged") as failure:
        load_newest(tmp_path, saved)
    assert failure.value.reason == "disk"


def test_damaged_weights_are_refused_with_the_file_name(tmp_path: Path) -> None:
    saved, network, _ = make_state()
    save(tmp_path, saved, keep=2)
    flip_bit(tmp_path / "step-000000007" / "__0_0.distcp")
    with pytest.raises(ConfigError, match=r"damaged \(__0_0.distcp\); delete it"):
        load_weights(tmp_path, network)


def test_asynchronous_saves_of_a_gpu_share_one_pinned_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, copies = [], staging._create_cpu_state_dict

    def without_pinning(state: Any, *, pin_memory: bool = False) -> Any:
        asked.append(pin_memory)
        return copies(state)

    monkeypatch.setattr(checkpoint, "has_pinned_memory", lambda: True)
    monkeypatch.setattr(staging, "_create_cpu_state_dict", without_pinning)
    state, network, _ = make_state()
    saver = CheckpointSaver(tmp_path, keep=2, asynchronous=True)
    for value in (7, 8):
        with torch.no_grad():
            network.patches_in.bias.fill_(value)
        saver.save(state)
        with torch.no_grad():
            network.patches_in.bias.fill_(0)
        saver.wait()
        other, loaded, _ = make_state(seed=1)
        load_newest(tmp_path, other)
        assert bool((loaded.patches_in.bias == value).all())
    assert asked == [True]


def test_an_asynchronous_save_holds_the_state_of_its_own_step(tmp_path: Path) -> None:
    state, network, _ = make_state()
    saver = CheckpointSaver(tmp_path, keep=2, asynchronous=True)
    with torch.no_grad():
        network.patches_in.bias.fill_(7)
    saver.save(state)
    with torch.no_grad():
        network.patches_in.bias.fill_(8)
    saver.wait()
    assert [saved.step for saved in saver.finished()] == [7]
    assert saver.finished() == []
    other, loaded, _ = make_state(seed=1)
    load_newest(tmp_path, other)
    assert bool((loaded.patches_in.bias == 7).all())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_superseded_attempt_installs_no_checkpoint(tmp_path: Path, asynchronous: bool) -> None:
    state, *_ = make_state()
    save(tmp_path, state, keep=2)
    saver = CheckpointSaver(tmp_path, keep=2, asynchronous=asynchronous, is_superseded=lambda: True)
    state.step = 8
    with pytest.raises(Superseded):
        save_and_wait(saver, state)
    assert complete(tmp_path) == ["step-000000007"]


def test_the_message_of_torch_for_a_full_disk_is_recognised(tmp_path: Path) -> None:
    message = "[enforce fail at inline_container.cc:672] . unexpected pos 320 vs 262"
    assert reason_of(RuntimeError(message)) == "disk"
    assert reason_of(RuntimeError("unexpected pos")) == "crash"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_full_disk_leaves_the_last_checkpoint(full_disk: Path, asynchronous: bool) -> None:
    state, *_ = make_state()
    saver = CheckpointSaver(full_disk, keep=2, asynchronous=asynchronous)
    save_and_wait(saver, state)
    (full_disk / "other people's").write_bytes(b"x" * (shutil.disk_usage(full_disk).free - 100_000))
    state.step = 8
    with pytest.raises(OSError, match="No space left") as error:
        save_and_wait(saver, state)
    assert reason_of(error.value) == "disk"
    assert {entry.name for entry in full_disk.iterdir() if entry.is_dir()} == {"step-000000007"}
    assert newest(full_disk) == "step-000000007"
    assert load_newest(full_disk, state)
    assert state.step == 7
