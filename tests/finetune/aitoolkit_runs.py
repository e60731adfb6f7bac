"""Runs by ai-toolkit in this process, for tests: make, run, stop and inspect them."""

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

from configs.load import merge, resolve, to_tree
from configs.schema import Finetune
from configs.yaml12 import dump_yaml
from finetune.aitoolkit.run import carry_out
from runs.attempt.open import claim
from runs.folder import RunFolder, make_run, resume_config
from runs.records import Record
from tests.real_runs import in_this_process
from tests.slurm.cluster import wait_until
from train.engine.attempt import run_attempt as run_here

_READS = {
    "Dataset": "flip_x flip_y bucket_tolerance control_path",
    "Model": "arch low_vram qtype quantize name_or_path model_kwargs extras_name_or_path",
    "Network": "type linear network_kwargs",
    "Sample": "num_frames fps neg guidance_scale",
    "Save": "save_every",
    "Train": "noise_offset cache_text_embeddings optimizer optimizer_params timestep_type steps "
    "validation_config",
}
_CLASSES = "".join(
    f"class {name}Config:\n    def __init__(self, **kwargs):\n"
    + "".join(f"        self.{key} = kwargs.get('{key}', None)\n" for key in keys.split())
    for name, keys in _READS.items()
)
_READ_AT_TOP = """class Process:
    def __init__(self):
        self.get_conf('training_seed', None)
        self.get_conf('performance_log_every', 0)
        self.config.get('name')
"""
_EXTENSION = "extensions_built_in/diffusion_models"
# As much of a checkout as is read: keys, kinds of model with what they load, and settings.
SOURCE = {
    "toolkit/config_modules.py": _CLASSES + "        if self.arch == 'sdxl':\n            pass\n",
    "jobs/process/BaseProcess.py": _READ_AT_TOP,
    "jobs/process/BaseTrainProcess.py": "",
    "jobs/process/BaseSDTrainProcess.py": "",
    "extensions_built_in/sd_trainer/SDTrainer.py": "",
    "extensions_built_in/sd_trainer/DiffusionTrainer.py": "",
    f"{_EXTENSION}/flux2/flux2_model.py": """
MISTRAL = "mistralai/Mistral-Small"
OTHER = "nobody/loads-this"
class Flux2Model(BaseModel):
    arch = "flux2"
    vae_path = "owner/flux-vae"
    def load_te(self):
        return load(MISTRAL)
    def load_model(self):
        self.load_te(self.vae_path)
        return "transformer/diffusion_pytorch_model.safetensors"
class KleinModel(Flux2Model):
    arch = "flux2_klein"
    vae_path = "owner/klein-vae"
    def load_te(self):
        return load("Qwen/Qwen3")
""",
    f"{_EXTENSION}/z_image/z_image.py": """
class ZImageModel(BaseModel):
    arch: str = "zimage"
""",
    "ui/src/app/jobs/new/options.tsx": """
export const modelArchs: ModelArch[] = [
  {
    name: 'zimage:turbo',
    defaults: {
      // default updates when [selected, unselected] in the UI
      'config.process[0].model.name_or_path': ['Tongyi-MAI/Z-Image-Turbo', defaultNameOrPath],
      'config.process[0].model.quantize': [true, false],
      'config.process[0].model.model_kwargs': [
        {
          match_target_res: false,
        },
        {},
      ],
      'config.process[0].model.assistant_lora_path': ['ostris/adapter/v2.safetensors', undefined],
      'config.process[0].datasets[x].flip_x': [true, undefined],
      'config.process[0].sample.sample_steps': [9, 25],
      'config.process[0].train.timestep_type': ['weighted', 'sigmoid'],
    },
  },
""",
    "ui/src/helpers/defaultSamples.ts": "  width: 1024,\n  guidance_scale: 4,\n  sample_steps: 30,",
}
FAKE_TOOLKIT = Path(__file__).with_name("fake_aitoolkit.py")


def make_toolkit(folder: Path) -> Path:
    """Make a checkout of ai-toolkit whose run.py is the fake one, with a little of its source."""
    for name, text in SOURCE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv" / "bin" / "python").symlink_to(sys.executable)
    shutil.copyfile(FAKE_TOOLKIT, folder / "run.py")
    return folder


def make_images(folder: Path, *, count: int = 2) -> Path:
    """Make captioned black images."""
    folder.mkdir()
    for number in range(count):
        Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"[trigger], the {number}.")
    return folder


def finetune_config(**groups: Any) -> Finetune:
    """Return a config of a model, images and a prompt that nobody looks for, changed by groups."""
    tree = {"flux": {"folder": "/f"}, "data": {"folder": "/d"}, "sample": {"prompts": ["a"]}}
    return resolve({"kind": "finetune", **tree, **groups}, source="test")


def new_run(folder: Path, **changes: Any) -> RunFolder:
    """Make a run folder, inputs unchecked; `__` in the names of `changes` stands for a dot."""
    tree = {
        "kind": "finetune",
        "engine": "aitoolkit",
        "flux": {"folder": str(folder / "model")},
        "data": {"folder": str(folder / "images"), "trigger": "a thing"},
        "train": {"steps": 12},
        "checkpoint": {"every": 4},
        "log": {"every": 1, "tensorboard": False},
        "sample": {"prompts": ["[trigger] at sea", "costs $5, not ${HOME}"], "every": 4},
    }
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    config = resolve(merge(tree, dotted), source="test")
    return make_run("kit", to_tree(config))


def run_attempt(
    run: RunFolder, *overrides: str, meanwhile: Callable[[], None] | None = None
) -> int:
    """Run one more attempt to its end; `meanwhile` runs in another thread."""
    config = resume_config(run, list(overrides))
    assert isinstance(config, Finetune)
    number = int(claim(run, config, began=None).name)
    thread = threading.Thread(target=meanwhile or (lambda: None))
    with in_this_process():
        thread.start()
        try:
            return run_here(run, carry_out, number=number)
        finally:
            thread.join()


def signal_at(run: RunFolder, step: int, number: int = signal.SIGUSR1) -> None:
    """Send this process a signal once the run has recorded a step."""
    wait_until(lambda: any(r.get("step", 0) >= step for r in steps(run)))
    os.kill(os.getpid(), number)


def steps(run: RunFolder) -> list[Record]:
    """Return the step records in file order."""
    return [r for r in run.records() if "event" not in r and "drawn_images" not in r]


def events(run: RunFolder, name: str) -> list[Record]:
    """Return the events of a name."""
    return [r for r in run.records() if r.get("event") == name]


def save_assistant(file: Path, *, width: int = 32) -> Path:
    """Save a random LoRA of rank 4 on all attention of the tiny Flux, as an assistant."""
    random, tensors = np.random.default_rng(0), {}
    for block in ("transformer_blocks.0", "single_transformer_blocks.0"):
        for name in ("to_q", "to_k", "to_v"):
            key = f"transformer.{block}.attn.{name}"
            down, up = random.normal(size=(4, width)), random.normal(size=(width, 4))
            tensors[f"{key}.lora_A.weight"] = (down / width**0.5).astype(np.float32)
            tensors[f"{key}.lora_B.weight"] = (up / 4).astype(np.float32)
    save_file(tensors, file)
    return file


def write_job(file: Path, tiny: Path) -> Path:
    """Write a config that both engines accept, for the tiny Flux in a folder."""
    config: dict[str, Any] = {
        "kind": "finetune",
        "flux": {"folder": str(tiny / "model")},
        "data": {
            "folder": str(tiny / "images"),
            "trigger": "tiny subject",
            "resolutions": [64],
            "bucket": 16,
        },
        "lora": {"rank": 4},
        "optimizer": {"lr": 0.001},
        "train": {"steps": 12},
        "checkpoint": {"every": 5},
        "log": {"every": 1, "tensorboard": False},
        "sample": {
            "prompts": ["[trigger] on a beach", "it costs $5, not ${HOME}"],
            "every": 5,
            "width": 64,
            "height": 64,
            "steps": 1,
        },
        "resources": {"gpus_per_node": 0},
    }
    file.write_text(dump_yaml(config))
    return file
