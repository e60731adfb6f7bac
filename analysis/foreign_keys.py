"""Classify the keys of scripts and of other trainers by the words of their names.

No list of names is whole. A key whose words are not known changes something unknown: two arms that
differ in it have a ratio, but no claim rests on it.
"""

import re
from functools import cache
from typing import Literal

Kind = Literal[
    "name", "label", "seed", "batch", "devices", "length", "objective", "term", "data",
    "evaluation", "sampling", "setting", "unknown",
]  # fmt: skip

_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Groups of a config that say nothing of their keys.
_GROUPS = _words(
    "params args arg config cfg opt opts hparams hyperparameters hp settings run experiment "
    "exp fit lightning common general base callbacks"
)
# What a run does beside its training, whatever else the name says.
_ASIDE = _words(
    "print log logs logging logger save saving ckpt checkpoint checkpointing checkpoints cache vis "
    "viz visualize thumbnail report wandb tensorboard tb debug profile profiler plot verbose "
    "snap tick metrics monitor early patience hub"
)
# Beside these a `log` is a logarithm, and a checkpoint another network that takes part.
_NOT_ASIDE = _words("snr sigma var variance mean std normal prob scale teacher reference target")
_HELD_OUT = _words(
    "eval evals evaluate evaluation evaluator val valid validation validate test testing dev "
    "holdout heldout"
)
_OF_QUALITY = _words("fid kid fvd inception infer inference guidance nfe ddim")
# Words of images drawn beside the training, but also of those trained on.
_DRAWN = _words("sample samples sampling gen generate generation preprocess preprocessing")
_OF_DRAWN = _words("steps step timesteps resolution image sampler")
# When and how fast something is done beside the training, not what is done.
_HOW = _words(
    "interval every freq frequency period check workers threads dtype precision strategy delay "
    "accumulation sanity do start prompt prompts bs bsz batchsize nodes processes metric"
)
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
_OF_LENGTH = _COUNTS - {"size"} | _words(
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
    "process proc procs machines replicas dp parallel ranks distributed tpus accelerators"
)
_OF_DEVICES = _COUNTS | _words("trainer slurm data train training")
_LOSSES = _words(
    "loss losses criterion objective snr parameterization parametrization smoothing mixup "
    "cutmix kl lpips perceptual huber prediction pred predict"
)
# What a part of the steps predicts without, if it is dropped.
_CONDITIONS = _words(
    "cond condition conditional uncond class cfg guidance caption captions text prompt label "
    "labels token tokens patch"
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
    "learning lr0 lrf blr wd decay warmup warm cooldown anneal dropout depth width layer layers "
    "hidden dim dims embed embd embedding heads head patch qk mlp optimizer optim opt adam betas "
    "beta1 beta2 momentum nesterov eps epsilon clipping grad grads gradient norm batchnorm ema "
    "compile compiled amp bf16 fp16 fp32 tf32 precision mixed prefetcher rank lora attention attn "
    "flash xformers sdpa fused foreach zero fsdp ddp deepspeed strategy sync recompute activations "
    "unused bias init act activation bench nobench cudnn deterministic scheduler sched cosine last "
    "arch architecture backbone net network variant"
)
# Beside a setting these do not make it another quantity. Any other word may.
_PLAIN = _words(
    "model type name kind use no enable enabled mode method module min rate ratio factor alpha "
    "value val scale base text encoder decoder unet transformer dit block blocks channels to on "
    "implementation clip prob backend eta power with train training trainer solver dataloader "
    "wrapper torch tokenizers find parameters params args bucket cap mb mem buffers broadcast "
    "timeout level bn updates cycles style distributed npu allow half eff full benchmark env"
)
# The interval of HF and diffusers; `val_steps` may count batches.
_EVERY = _words("eval evaluation validation steps epochs")
# How fp16 scales a loss, and what HF returns.
_OF_SCALER = _SETTINGS | _words("loss scale scaler initial dynamic window prediction only")
# Last parts of a path that data sets have in common.
_PARTS = _words(
    "train training val valid validation test data dataset datasets images image imgs img "
    "latents train2014 train2017 val2017 raw processed jpeg png"
)
_OF_JOB = re.compile(r"\d+|.*\d{5,}.*")


@cache
def kind_of(key: str) -> Kind:
    """Return what a key is about: the most harmful of what its words may mean."""
    known = _words_of(key)
    is_seed = known & _SEEDS and known - _SEEDS <= _OF_SEED | _GROUPS
    if is_seed or known == {"random", "state"} or key.lower().endswith("seed"):
        return "seed"
    is_of_data = known & {"train", "image", "images", "instance", *_DATA}
    if not is_of_data and (named := _of_a_run(known)):
        return named
    group, dot, own = key.removesuffix("._target_").partition(".")
    while dot and _words_of(group) <= _GROUPS:
        key = own
        group, dot, own = key.partition(".")
    known = _words_of(key.removesuffix("._target_"))
    return _of_quantities(known) or ("setting" if _is_setting(known) else "unknown")


def _words_of(key: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(key))


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
    if known & {"drop", "dropout"} and known & _CONDITIONS:
        return "objective"
    if known & {"vae", "tokenizer", "autoencoder"} and not known & (_LOADING | _BATCHES):
        return "data"
    if known & {"samples", "imgs", "images", "ims", "tokens"}:
        if "per" in known:
            return "unknown" if known & {"s", "sec", "second"} else "batch"
        if known & {"train", "total"}:
            return "unknown"
    is_of_images = known & {"image", "img", "input", "crop"} and known & {"size", "folder", "dir"}
    is_of_data = is_of_images or (known & _DATA and not known & _LOADING)
    if beside := _beside_training(known):
        return beside
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
        is_scaler = known & {"scale", "scaler", "only"} and known <= _OF_SCALER
        return "setting" if is_scaler else "objective"
    return "data" if is_of_data else None


def _beside_training(known: frozenset[str]) -> Kind | None:
    """Return what a key of evaluations, of logs or of saving is about, None for other keys."""
    is_held_out = known & _HELD_OUT and not {"clip", "val"} <= known
    is_sampling = known & _OF_QUALITY
    is_how = {"batch", "size"} <= known or known & _HOW or (known & _LENGTHS and known <= _EVERY)
    if is_how and (is_held_out or is_sampling or known & _DRAWN):
        return "setting"
    if is_held_out:
        return "evaluation"
    if known & _ASIDE and not known & _NOT_ASIDE:
        return "setting"
    if is_sampling or (known & _DRAWN and known & _OF_DRAWN) or {"cfg", "scale"} <= known:
        return "sampling"
    return "unknown" if known & _DRAWN else None


def _is_setting(known: frozenset[str]) -> bool:
    """Whether a name holds a setting, and no word that may make it another quantity."""
    others = known - _SETTINGS - _PLAIN - _DATA - _COUNTS
    if known & {"warmup", "warm", "cooldown", "ema"}:
        others -= _LENGTHS | {"every", "update"}
    if "decay" in known:
        others -= {"weight"}
    if known & {"drop", "dropout"}:
        others -= {"path"}
    return not others and bool(known & _SETTINGS or known & {"model", "variant"})


def place_of(value: object) -> str:
    """Return the part of a path that names a data set, without folders of a job; else the text."""
    text = str(value)
    parts = [part for part in text.split("/") if part] if "/" in text else []
    telling = [one for one in parts if one.lower() not in _PARTS and not _OF_JOB.fullmatch(one)]
    return telling[-1] if telling else text
