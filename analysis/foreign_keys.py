"""Classify the keys of scripts and of other trainers by the words of their names.

No list of names is whole. A key whose words are not known changes something unknown: two arms that
differ in it have a ratio, but no claim rests on it.
"""

import re
from functools import cache
from typing import Literal

Kind = Literal[
    "name",
    "label",
    "seed",
    "batch",
    "devices",
    "length",
    "objective",
    "data",
    "evaluation",
    "setting",
    "unknown",
]

_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Groups of a config that say nothing of their keys.
_GROUPS = _words(
    "params args arg config cfg opt opts hparams hyperparameters hp settings run experiment "
    "exp fit lightning common general base"
)
# What a run does beside its training.
_ASIDE = _words(
    "eval evaluate evaluation evaluator val valid validation validate test testing sample "
    "samples sampling fid infer inference gen generate generation print log logs logging "
    "logger save saving ckpt checkpoint checkpointing checkpoints cache preprocess "
    "preprocessing vis viz visualize thumbnail report wandb tensorboard tb debug profile "
    "profiler plot verbose sanity snap tick metrics monitor early patience"
)
_HELD_OUT = _words("eval evaluate evaluation val valid validation validate test testing fid")
_SEEDS = _words("seed seeds iseed rng prng")
_OF_SEED = _words(
    "random manual global data everything value train torch np numpy base key idx all model init"
)
# Names of a run and its folders, whose numbers do not tell arms apart.
_PLACES = _words("name dir directory folder path file")
_OWN_PLACES = _words(
    "name outdir workdir logdir savedir output outputs out tag tags note notes comment desc "
    "description version sha hash commit exp experiment run"
)
_NAMED = _words(
    "output out log logs logging run exp experiment work ckpt checkpoint checkpoints results "
    "result save project tb tensorboard wandb hydra cache tmp sample samples snapshot "
    "artifact default trainer job"
)
# Facts of when and where a run ran, which affect nothing.
_LABELS = _words(
    "date time timestamp uuid uid hostname host port pid user trial repeat repetition replicate "
    "rep session sweep nodelist node jobid launch created"
)
_LABELLED = _words(
    "run exp experiment start launch created slurm job array master dist world local cuda gpu "
    "git wandb project task"
)
_IDS = _words("id idx rank url addr address at")
_COUNTS = _words("num n nb max total number count of the size per ids id visible cuda")
_LENGTHS = _words(
    "steps step epochs epoch nepochs nepoch iters iter iterations niter niters updates update "
    "kimg nimg duration nsteps"
)
_OF_LENGTH = _COUNTS | _words(
    "train training trainer solver model optim optimizer scheduler lr schedule stop last end t"
)
# Of a sampler or a model as well as of the training.
_ANY_LENGTH = _words("steps step iters iter iterations num n nb number count of model solver")
_BATCHES = _words(
    "batch batchsize bs bsz mbs gbs minibatch microbatch accum accumulate accumulation"
)
_OTHER_BATCHES = _words(
    "norm auto find finder scale scaled lr vae encode tokenizer predict batchnorm"
)
_DEVICES = _words(
    "gpus gpu ngpus ngpu devices device nodes nnodes node nproc world ntasks tasks processes "
    "process proc machines replicas dp parallel"
)
_OF_DEVICES = _COUNTS | _words("trainer slurm data train training")
_LOSSES = _words(
    "loss losses criterion objective snr parameterization parametrization smoothing mixup "
    "cutmix kl lpips perceptual huber prediction pred predict"
)
_DATA = _words("dataset datasets datamodule data tokenizer vae autoencoder resolution corpus")
# How data are loaded, not which they are.
_LOADING = _words(
    "loader dataloader workers shuffle pin prefetch threads streaming stream memory preload "
    "persistent fast lazy memmap lmdb drop upload group parallelism processes proc tiling "
    "slicing dtype lr"
)
# Settings change how fast or how well a run trains, and leave its quantities alone.
_SETTINGS = _LOADING | _words(
    "learning wd decay warmup warm dropout depth width layer layers hidden dim dims embed "
    "embedding heads head channels optimizer optim opt betas beta1 beta2 momentum nesterov "
    "eps epsilon clip clipping grad gradient norm ema compile compiled amp bf16 fp16 fp32 "
    "tf32 precision mixed prefetcher rank alpha lora attention attn flash xformers fused "
    "foreach zero fsdp ddp deepspeed strategy unused bias init act activation bench cudnn "
    "deterministic scheduler sched cosine arch architecture backbone net network variant "
    "patch qk mlp guidance cooldown sync nobench"
)
_MODELS = _words("model name type size variant")
# Last parts of a path that data sets have in common.
_PARTS = _words(
    "train training val valid validation test data dataset datasets images image imgs img "
    "latents train2014 train2017 val2017 raw processed jpeg png"
)
_OF_JOB = re.compile(r"\d+|.*\d{5,}.*")


@cache
def kind_of(key: str) -> Kind:
    """Return what a key is about: the most harmful of what its words may mean."""
    words = [word.lower() for word in _WORD.findall(key)]
    known = frozenset(words)
    is_seed = known & _SEEDS and known - _SEEDS <= _OF_SEED | _GROUPS
    if is_seed or known == {"random", "state"} or words[-1:] == ["seed"]:
        return "seed"
    is_of_data = known & {"train", "image", "images", "instance", *_DATA}
    if not is_of_data and (named := _of_a_run(known)):
        return named
    while len(words) > 1 and words[0] in _GROUPS:
        words.pop(0)
    known = frozenset(words)
    return _of_quantities(known) or ("setting" if _is_setting(known) else "unknown")


def _of_a_run(known: frozenset[str]) -> Kind | None:
    if "device" in known and known <= {"device", "cuda", "gpu", "id"}:
        return "label"
    is_named = known & _PLACES and known & _NAMED
    if is_named or known <= _OWN_PLACES:
        return "name"
    if known <= _LABELS:
        return "label"
    if known & _LABELLED and known & (_LABELS | _IDS):
        return "label"
    return None


def _of_quantities(known: frozenset[str]) -> Kind | None:
    """Return what a key may change: the work of a step, a length, or what a loss is of."""
    is_sampled = known & {"timestep", "timesteps", "noise", "sigma"}
    if is_sampled and known & {"sampling", "sampler", "schedule", "weighting", "shift"}:
        return "objective"
    if known & {"vae", "tokenizer", "autoencoder"} and not known & (_LOADING | _BATCHES):
        return "data"
    if known & {"samples", "imgs", "images", "ims", "tokens"}:
        if "per" in known:
            return "batch"
        if known & {"train", "total"}:
            return "unknown"
    is_of_images = known & {"image", "img", "input", "crop"} and known & {"size", "folder", "dir"}
    is_of_data = is_of_images or (known & _DATA and not known & _LOADING)
    if known & _ASIDE:
        return "evaluation" if is_of_data and known & _HELD_OUT else "setting"
    is_length = known & _LENGTHS and known - _LENGTHS <= _OF_LENGTH
    if (is_length and known - _ANY_LENGTH) or {"t", "max"} <= known:
        return "length"
    if is_length:
        return "unknown"
    if known & _BATCHES:
        return "setting" if known & _OTHER_BATCHES else "batch"
    if known & _DEVICES and known - _DEVICES <= _OF_DEVICES:
        return "unknown" if known == {"gpu"} else "devices"
    if known & _LOSSES:
        return "setting" if known & {"scale", "scaler", "only"} else "objective"
    return "data" if is_of_data else None


def _is_setting(known: frozenset[str]) -> bool:
    return bool(known & _SETTINGS) or (known <= _MODELS and bool(known & {"model", "variant"}))


def place_of(value: object) -> str:
    """Return the part of a path that names a data set, without folders of a job; else the text."""
    text = str(value)
    parts = [part for part in text.split("/") if part] if "/" in text else []
    telling = [one for one in parts if one.lower() not in _PARTS and not _OF_JOB.fullmatch(one)]
    return telling[-1] if telling else text
