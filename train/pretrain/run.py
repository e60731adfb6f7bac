"""One attempt at a pretraining run: build everything, resume, and run the loop."""

import contextlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import nn

from configs.checks.batch import BatchLayout, divide
from configs.errors import DataError
from configs.schema import Pretrain
from runs.folder import RunFolder
from train.data.catalog import open_source
from train.data.latents.dataset import Latents
from train.data.latents.store import read_index
from train.data.loader import microbatches
from train.data.source import Source, training_split
from train.diffusion.timesteps import Bins
from train.engine.attempt import Attempt, TrainingContext, begin_training, run_attempt
from train.engine.checkpoint import (
    CheckpointSaver,
    CheckpointState,
    agree_on_newest,
    load_checkpoint,
    refuse_damaged,
)
from train.engine.checkpoint_files import SUMS, file_sum
from train.engine.clocks import Clocks
from train.engine.distributed import data_rank, process_group
from train.engine.environment import versions
from train.engine.loop import Loop
from train.engine.profiler import ProfileWindow
from train.gradient_noise.adaln_gram import AdalnGram
from train.gradient_noise.hooks import make_hook
from train.gradient_noise.online import OnlineNoise
from train.gradient_noise.per_bin import WholeModelNoise
from train.model import flops
from train.model.attention import attention_kernel
from train.model.build import network_macs
from train.model.parallelize import DTYPES, is_sharded, with_compile_resolved
from train.pretrain.evaluation import FidEvaluation, HeldOutLoss, PretrainEvaluator
from train.pretrain.gradient_check import check_gradients
from train.pretrain.micro_batch import tuned_micro_batch
from train.pretrain.step import PretrainStep
from train.pretrain.train_state import TrainState, make_train_state


def attempt(run: RunFolder, *, number: int) -> int:
    """Run one attempt at pretraining; return 0 if it leaves the run folder in order."""
    return run_attempt(run, Pretrain, _run, number=number)


def _run(attempt: Attempt[Pretrain]) -> None:
    config, ranks = attempt.config, attempt.ranks
    clocks = Clocks(ranks.device)
    tuned = tuned_micro_batch(attempt.run, config, ranks, attempt.number)
    layout = divide(config, world=ranks.world, tuned=tuned)
    source = open_source(config.data)
    training = _training_images(source, config)
    with process_group(ranks):
        config = with_compile_resolved(attempt.run, config, ranks)
        attempt = replace(attempt, config=config)
        window = ProfileWindow(
            config.profile,
            attempt.run.profile / f"attempt-{attempt.number:03d}",
            rank=ranks.rank,
            device=ranks.device,
            clocks=clocks,
        )
        train_state, state = _load_newest(attempt, layout, clocks)
        attempt.note(**_facts(config, layout, train_state.network))
        context = begin_training(attempt, layout=layout, state=state, clocks=clocks)
        held_out = None
        if config.validation.every is not None:
            held_out = HeldOutLoss(source, config, layout=layout, ranks=ranks)
        fid = FidEvaluation(config, attempt.run, ranks=ranks) if config.evaluate.fid.every else None
        noise = _noise(context, train_state, training)
        batches = microbatches(
            training,
            config,
            layout=layout,
            rank=data_rank(ranks, layout),
            images=state.images,
            pin=ranks.device.type == "cuda",
        )
        with contextlib.closing(batches):
            steps = PretrainStep(
                context=context, train_state=train_state, batches=batches, noise=noise
            )
            evaluator = PretrainEvaluator(
                context=context, train_state=train_state, held_out=held_out, noise=noise, fid=fid
            )
            loop = Loop(
                context=context,
                steps=steps,
                evaluator=evaluator,
                saver=CheckpointSaver(
                    attempt.run.checkpoints,
                    keep=config.checkpoint.keep,
                    asynchronous=config.checkpoint.asynchronous,
                    is_superseded=attempt.is_superseded,
                ),
                window=window,
            )
            check_gradients(context, train_state)
            request = loop.train()
        context.finish(request)


def _training_images(source: Source, config: Pretrain) -> Source:
    training = training_split(source, config.data)
    if len(training) < config.train.global_batch:
        raise DataError(
            f"{len(training)} training images are fewer than train.global_batch "
            f"{config.train.global_batch}"
        )
    if config.repa.weight:
        expected = flops.patches(config), config.repa.features
        stored = source.index.features if isinstance(source, Latents) else None
        if stored is None or stored.shape != expected:
            raise DataError(
                f"{config.data.path}: repa needs {expected[0]} features of {expected[1]} channels "
                f"per image, it has {stored.shape if stored else None}; set repa.features, or "
                "encode with encode.features and encode.feature_grid into another folder"
            )
    return training


def _load_newest(
    attempt: Attempt[Pretrain], layout: BatchLayout, clocks: Clocks
) -> tuple[TrainState, CheckpointState]:
    """Return the state at the newest checkpoint, else the trunk's, else before the first step."""
    checkpoints, trunk = attempt.run.checkpoints, attempt.config.train.branch_from
    newest = agree_on_newest(checkpoints)
    origin = checkpoints / newest if newest else trunk and Path(trunk)
    if origin and not newest:
        refuse_damaged(origin)
    train_state = make_train_state(
        attempt.config, layout=layout, ranks=attempt.ranks, resumes=origin is not None
    )
    state = train_state.checkpoint_state(clocks)
    if origin:
        load_checkpoint(origin, state)
    return train_state, state


def _noise(
    context: TrainingContext[Pretrain], train_state: TrainState, training: Source
) -> OnlineNoise | None:
    """Return the measurement of gradient noise that the config asks for."""
    config, layout, ranks = context.attempt.config, context.layout, context.attempt.ranks
    if not config.gns.enabled:
        return None
    hook, gram, whole = make_hook(train_state.model, train_state.network), None, None
    if config.gns.bins is not None:
        gram = AdalnGram(train_state.network, bins=Bins(count=config.gns.bins), device=ranks.device)
    if gram and config.gns.whole_every is not None:
        whole = WholeModelNoise(
            training,
            config,
            model=train_state.model,
            network=train_state.network,
            losses=train_state.losses,
            layout=layout,
            ranks=ranks,
            hook=hook,
            gram=gram,
        )
    return OnlineNoise(
        config, hook=hook, gram=gram, whole=whole, layout=layout, device=ranks.device
    )


def _facts(config: Pretrain, layout: BatchLayout, network: nn.Module) -> dict[str, Any]:
    """Return the sizes and types that the manifest keeps; rates are computed with them."""
    macs, trunk = network_macs(config), config.train.branch_from
    facts: dict[str, Any] = {}
    if config.data.source == "latents":
        assert config.data.path is not None
        facts["vae_sha256"] = read_index(Path(config.data.path)).vae.sha256
    if config.model.family == "dit":
        facts["recomputed_macs_per_image"] = flops.recomputed_macs(config)
        facts["tokens_per_image"] = flops.tokens(config)
        facts["attention"] = attention_kernel(
            heads=config.model.heads // layout.tensor,
            tokens=flops.tokens(config),
            head_dim=config.model.width // config.model.heads,
            dtype=DTYPES[config.train.precision],
            device=next(network.parameters()).device,
        )
    return facts | {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "macs_per_image": macs,
        "training_flops_per_image": flops.training_flops(network_macs(config, training=True)),
        "ranks": layout.world,
        **asdict(layout),
        "branched_from": trunk and {"checkpoint": trunk, "sha256": file_sum(Path(trunk, SUMS))},
        "compile": config.train.compile,
        "dtypes": _dtypes(config, layout),
        "versions": versions(),
    }


def _dtypes(config: Pretrain, layout: BatchLayout) -> dict[str, str]:
    """Return the element types; the layout only decides whether there is a `gather`."""
    gather = str(DTYPES[config.train.precision]).removeprefix("torch.")
    compute = "tfloat32" if config.train.precision == "tf32" else gather
    kept = ("parameters", "gradients", "optimizer", "average", "reduction")
    types = dict.fromkeys(kept, "float32") | {"compute": compute}
    if is_sharded(layout):
        reduction = str(DTYPES[config.train.reduce]).removeprefix("torch.")
        types |= {"gather": gather, "reduction": reduction}
    return types
