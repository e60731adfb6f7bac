"""Keys and values that configs of earlier versions may hold and that the schema has no more.

A config that has a removed key at its default is read as if it did not have it. At another value
it is refused, so that nothing trains as something else; `analysis` reads such runs all the same.
"""

from dataclasses import dataclass
from typing import Any

from configs.schema.key import Tag


@dataclass(frozen=True, kw_only=True)
class Removed:
    """The value that switched a key off, what replaces the key, and the `tag` that it had."""

    default: Any
    instead: str
    tag: Tag | None = None


# By dotted name.
REMOVED_KEYS = {
    "objective.extra": Removed(default={}, instead="its terms are removed; remove it"),
    "objective.extra.contrastive": Removed(default=0.0, instead="removed; remove it", tag="term"),
    "objective.extra.group": Removed(default=16, instead="removed with contrastive; remove it"),
    "objective.extra.direction": Removed(default=0.0, instead="removed; remove it", tag="term"),
    "objective.extra.dispersive": Removed(default=0.0, instead="removed; remove it", tag="term"),
    "objective.extra.block": Removed(default=None, instead="removed with dispersive; remove it"),
    "objective.sampler": Removed(default="uniform", instead="removed; remove it"),
    "objective.strata": Removed(default=16, instead="removed with objective.sampler; remove it"),
    "objective.bin_shares": Removed(default=None, instead="removed; remove it"),
    "objective.schedule": Removed(default="linear", instead="removed: ddpm's is linear"),
    "objective.min_snr": Removed(default=None, instead="removed; remove it"),
    "model.norm": Removed(default="layer", instead="removed; remove it"),
    "train.ema_batch": Removed(default=None, instead="removed; set train.ema_decay"),
    "profile.memory": Removed(default=False, instead="removed; remove it"),
    "objective.shift_tokens": Removed(default=None, instead="removed; set objective.logit_mean"),
    "data.labels": Removed(default=None, instead="removed; make a sub-folder for each class"),
    "encode.labels": Removed(default=None, instead="removed; make a sub-folder for each class"),
    "config": Removed(default=None, instead="removed from gns runs; name a run"),
    "objective.mode_scale": Removed(default=1.29, instead="removed with timesteps: mode"),
    "model.value_residual": Removed(default=False, instead="removed; remove it"),
    "model.frequencies": Removed(default="dit", instead="removed; take the official weights"),
    "model.routing.tune": Removed(default=0.0, instead="removed; remove it"),
    "model.mup_base_width": Removed(default=None, instead="removed; remove it"),
    "model.adaln_rank": Removed(default=None, instead="removed; remove it"),
    "train.float8": Removed(default=False, instead="removed; set train.precision"),
    "encode.channels": Removed(default=3, instead="removed; remove it"),
    "encode.skip_bad": Removed(default=False, instead="removed; ditbench check FOLDER lists them"),
    "train.ema_snapshots": Removed(default=None, instead="removed; set train.ema_decay"),
    "gns.bins": Removed(default=10, instead="removed; run jobs/gns.sbatch on checkpoints"),
    "gns.whole_every": Removed(default=None, instead="removed; run jobs/gns.sbatch on checkpoints"),
    "gns.whole_repeats": Removed(default=2, instead="removed with gns.whole_every; remove it"),
    "sampler": Removed(default="uniform", instead="removed from gns runs; remove it"),
    "strata": Removed(default=16, instead="removed from gns runs; remove it"),
    "bin_shares": Removed(default=None, instead="removed from gns runs; remove it"),
    "sigma_rel": Removed(default=None, instead="removed; set weights to ema"),
    "guide": Removed(default=None, instead="removed; set guidance without a guide"),
    "guide_step": Removed(default=None, instead="removed with guide; remove the key"),
    "files": Removed(default=[], instead="removed: the script runs where it is submitted"),
    "setup": Removed(default=[], instead="removed; write these lines into the script"),
    "requeue_code": Removed(default=None, instead="removed; use jobs/requeue.sh in the script"),
    "log.console_ranks": Removed(default=[0], instead="removed; read attempts/N/ranks/*.log"),
    "log.file": Removed(default=None, instead="removed; name the file to ditbench"),
    "stop_after": Removed(default=3, instead="removed: end a study with ditbench cancel"),
    "flux.text_tokens": Removed(default=512, instead="removed: as many as the tokenizer takes"),
    "flux.quantise": Removed(default="none", instead="removed; set aitoolkit.model.quantize"),
    "quantise": Removed(default=None, instead="removed; remove it: the model is drawn as it is"),
    "data.skip_bad": Removed(default=False, instead="removed; list them by ditbench check FOLDER"),
    "sample.prompts_file": Removed(default=None, instead="removed; list sample.prompts"),
    "prompts_file": Removed(default=None, instead="removed; list prompts"),
    "data.repeats": Removed(default={}, instead="removed; name the sub-folder N_NAME"),
    "data.flip": Removed(default=False, instead="removed; set aitoolkit.datasets.flip_x"),
    "data.masks": Removed(default=None, instead="removed; set aitoolkit.datasets.mask_path"),
    "data.regularisation": Removed(default=None, instead="removed; remove it"),
    "data.regularisation_weight": Removed(default=1.0, instead="removed; remove it"),
    "lora.kind": Removed(default="lora", instead="removed; set aitoolkit.network.type"),
    "lora.rank_pattern": Removed(default={}, instead="removed; set lora.rank"),
    "lora.alpha": Removed(default=None, instead="removed: alpha is the rank; set optimizer.lr"),
    "lora.alpha_pattern": Removed(default={}, instead="removed: alpha is the rank"),
    "lora.dropout": Removed(default=0.0, instead="removed; set aitoolkit.network.dropout"),
    "train.shift": Removed(default=None, instead="removed; set train.timesteps to shift"),
    "optimizer.kind": Removed(default="adamw", instead="removed; set aitoolkit.train.optimizer"),
    "train.compile": Removed(default=False, instead="removed; remove it"),
    "train.ema_decay": Removed(default=None, instead="removed; set aitoolkit.train.ema_config"),
    "weights": Removed(default="ema", instead="removed; name the file as lora"),
    "train.logit_mean": Removed(default=0.0, instead="removed; remove it"),
    "train.logit_std": Removed(default=1.0, instead="removed; remove it"),
}
# Values of keys that remain, and what replaces them.
REMOVED_VALUES = {
    ("optimizer.kind", "schedule_free"): "removed; set adamw with optimizer.decay",
    ("train.timesteps", "weighted"): "removed; set aitoolkit.train.timestep_type",
    ("model.conditioning", "in_context"): "removed; set adaln or adaln_single",
    ("objective.prediction", "v"): "removed; set eps",
    ("objective.timesteps", "mode"): "removed; set uniform or logit_normal",
    ("train.precision", "fp16"): "removed; set bf16, or fp32 on GPUs without it",
    ("model.routing.kind", "sprint"): "removed; set tread",
    ("train.compile", "graphs"): "removed; set true",
}
