"""`check` looks what X is, and says whether it is sound."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from configs.load import load, to_tree
from launch.__main__ import main
from launch.check.kinds import kind_of
from runs.folder import ROOT, make_run
from tests.launch.conftest import DIGITS, Launch


def images(folder: Path, *names: str) -> Path:
    """Save an image of its own under each name."""
    for number, name in enumerate(names):
        pixels = np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)
    return folder


def test_each_x_is_taken_for_what_it_is(launch: Launch, site: Path, tmp_path: Path) -> None:
    lora = tmp_path / "a.safetensors"
    halves = {"x.lora_A.weight": np.zeros((4, 8)), "x.lora_B.weight": np.zeros((16, 4))}
    save_file(halves, lora)
    code, out, err = launch("check", DIGITS, ROOT / "configs/studies/layouts.yaml", lora)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{DIGITS}: config of kind pretrain: good",
        f"{ROOT}/configs/studies/layouts.yaml: study of 48 cells: good",
        f"{lora}: LoRA of 1 layer, rank 4, F64: good",
    ]


def test_a_model_that_is_not_here_is_named_with_the_way_to_get_it(launch: Launch) -> None:
    code, out, err = launch("check", ROOT / "configs/finetune/flux-dev.yaml", "flux.folder=m/FLUX")
    assert (code, out.endswith("config of kind finetune: good\n")) == (0, True)
    assert "remark  flux.folder m/FLUX: no such file or folder, and jobs download nothing" in err
    assert "hf download OWNER/FLUX --local-dir m/FLUX\n" in err


def test_a_damaged_lora_has_problems(launch: Launch, tmp_path: Path) -> None:
    lora = tmp_path / "a.safetensors"
    save_file({"x.lora_A.weight": np.zeros((4, 8)), "y.lora_down.weight": np.zeros((4, 8)),
               "y.lora_up.weight": np.zeros((16, 3))}, lora)  # fmt: skip
    code, out, _ = launch("check", lora)
    assert code == 1
    assert "x: one of its two matrices is missing" in out
    assert "y: its matrices (4, 8) and (16, 3) share no rank" in out
    save_file({"weight": np.zeros(3)}, lora)
    code, _, err = launch("check", lora)
    assert code == 2
    assert err.startswith(f"{lora}: none of its 1 tensors is a matrix of a LoRA")


def test_images_and_latents_go_to_the_part_that_reads_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    captioned = images(tmp_path / "subject", *(f"{n}.png" for n in range(6)))
    for number in range(6):
        (captioned / f"{number}.txt").write_text(f"[trigger], number {number}")
    assert main(["check", str(captioned), "--resolution", "64"]) == 0
    assert "6 images, 0 faults" in capfd.readouterr().err
    (captioned / "3.txt").unlink()
    assert main(["check", str(captioned), "--resolution", "64"]) == 1
    assert "3.png: " in capfd.readouterr().out
    classes = images(tmp_path / "classes", "cat/1.png", "cat/2.png", "dog/3.png")
    assert main(["check", str(classes), "--fast"]) == 0
    assert f"{classes}: no problems found" in capfd.readouterr().out
    store = tmp_path / "store"
    store.mkdir()
    (store / "encoding.json").write_text("{}")
    assert main(["check", str(store)]) == 1
    assert "not a finished latent store" in capfd.readouterr().out


def test_what_is_unknown_and_a_flag_of_another_kind_are_misuse(
    launch: Launch, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    run = make_run("digits", to_tree(load(DIGITS, [])), identity="1")
    for name in ("notes.txt", "empty", run.path):
        code, out, err = launch("check", tmp_path / name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "not recognised; check takes a config or a study (.yaml), a batch script" in err
    code, _, err = launch("check", DIGITS, "--fast")
    assert (code, err) == (2, f"--fast: does not apply to {DIGITS}, a config\n")
    # The others are checked all the same.
    code, out, _ = launch("check", tmp_path / "notes.txt", DIGITS)
    assert (code, out) == (2, f"{DIGITS}: config of kind pretrain: good\n")
    assert "no run and study" not in launch("check", "no-such-name")[2]


def test_a_script_is_known_by_its_name_or_its_first_bytes(tmp_path: Path) -> None:
    for name, text in (("a.sbatch", ""), ("b", "#!/bin/sh\n"), ("c.txt", "x\n#SBATCH -n 1\n")):
        (tmp_path / name).write_text(text)
        assert kind_of(tmp_path / name) == "batch script"
