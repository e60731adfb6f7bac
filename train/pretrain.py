"""One attempt at a pretraining run, from its folder to its last event."""

import contextlib

from torch import nn

from configs.batch import Division, divide
from configs.run import RunFolder
from configs.schema import Pretrain
from train.attempt import Attempt, carry_out
from train.checkpoint import Saver, TrainingState, agree_on_newest, load_checkpoint
from train.clocks import Clocks
from train.data.loader import microbatches
from train.data.source import DataError, Source, held_out_part, open_source, training_part
from train.dist import Ranks, data_rank, process_group
from train.ema import Average, batch_decay
from train.facts import training_facts
from train.gns.gram import AdalnGram
from train.gns.taps import make_tap
from train.gns.watch import NoiseWatch
from train.gns.whole import WholeModelNoise
from train.hang import HangWatch
from train.journal import Arrivals, log
from train.layout import lay_out
from train.loop import Trainer
from train.objective import Objective
from train.optimizer import make_optimizer
from train.profile import ProfileWindow
from train.soundness import LossScale
from train.start import finish_network, start_network
from train.timesteps import Bins
from train.tune import tuned_micro_batch
from train.validation import Validation


def attempt(run: RunFolder, *, number: int) -> int:
    """Carry out an attempt at pretraining; 0 whenever the run folder is in order."""
    return carry_out(run, Pretrain, _run, number=number)


def _run(attempt: Attempt[Pretrain]) -> None:
    config, ranks = attempt.config, attempt.ranks
    clocks = Clocks(ranks.device)
    tuned = tuned_micro_batch(attempt.run, config, ranks, attempt.number)
    division = divide(config, world=ranks.world, tuned=tuned)
    source = open_source(config.data)
    with process_group(ranks):
        trainer = _trainer(attempt, division, source, clocks)
        with contextlib.closing(trainer.batches), contextlib.closing(trainer.hang):
            wish = trainer.train()
        trainer.conclude(wish)


def _trainer(
    attempt: Attempt[Pretrain], division: Division, source: Source, clocks: Clocks
) -> Trainer:
    """Everything that training needs, with the newest checkpoint in it."""
    run, config, ranks = attempt.run, attempt.config, attempt.ranks
    training = _training_images(source, config)
    checkpoint = agree_on_newest(run.checkpoints)
    network = start_network(config, division, resumes=checkpoint is not None)
    model = lay_out(network, config, division=division, ranks=ranks)
    if checkpoint is None:
        finish_network(network, config)
    optimizer = make_optimizer(network, config.optimizer)
    average = Average(network, decay=batch_decay(config.train), warmup=config.train.ema_warmup)
    scale = LossScale(fp16=config.train.precision == "fp16")
    state = TrainingState(
        network=network, average=average, optimizer=optimizer, scale=scale, clocks=clocks
    )
    if checkpoint is not None:
        load_checkpoint(run.checkpoints / checkpoint, state)
    journal = attempt.open_journal(tensorboard=config.log.tensorboard)
    attempt.note(**training_facts(config, division, network))
    objective = Objective(config, ranks.device)
    noise = _noise(config, training, network, model, objective, division, ranks)
    journal.event("started", step=state.step, images=state.images)
    if checkpoint is not None:
        log.info("resumed from step %d", state.step)
    return Trainer(
        config=config,
        division=division,
        ranks=ranks,
        run=run,
        network=network,
        model=model,
        objective=objective,
        optimizer=optimizer,
        scale=scale,
        average=average,
        state=state,
        saver=Saver(
            run.checkpoints,
            keep=config.checkpoint.keep,
            asynchronous=config.checkpoint.asynchronous,
            is_superseded=attempt.is_superseded,
        ),
        clocks=clocks,
        journal=journal,
        arrivals=Arrivals(attempt.folder, rank=ranks.rank),
        watch=attempt.watch,
        batches=microbatches(
            training,
            config,
            division=division,
            rank=data_rank(ranks, division),
            images=state.images,
            pin=ranks.device.type == "cuda",
        ),
        hang=HangWatch(attempt.folder, ranks=ranks, least_s=config.train.hang_s),
        window=ProfileWindow(
            config.profile,
            run.profile / f"attempt-{attempt.number:03d}",
            rank=ranks.rank,
            device=ranks.device,
            clocks=clocks,
        ),
        validation=_validation(source, config, division, ranks),
        noise=noise,
    )


def _noise(
    config: Pretrain,
    source: Source,
    network: nn.Module,
    model: nn.Module,
    objective: Objective,
    division: Division,
    ranks: Ranks,
) -> NoiseWatch | None:
    if not config.gns.enabled:
        return None
    tap, gram, whole = make_tap(model, network), None, None
    if config.gns.bins is not None:
        gram = AdalnGram(network, bins=Bins(count=config.gns.bins), device=ranks.device)
    if gram and config.gns.whole_every is not None:
        whole = WholeModelNoise(
            source,
            config,
            model=model,
            network=network,
            objective=objective,
            division=division,
            ranks=ranks,
            tap=tap,
            gram=gram,
        )
    return NoiseWatch(
        config, tap=tap, gram=gram, whole=whole, division=division, device=ranks.device
    )


def _training_images(source: Source, config: Pretrain) -> Source:
    training = training_part(source, config.data)
    if len(training) < config.train.global_batch:
        raise DataError(
            f"{len(training)} training images are fewer than train.global_batch "
            f"{config.train.global_batch}"
        )
    return training


def _validation(
    source: Source, config: Pretrain, division: Division, ranks: Ranks
) -> Validation | None:
    if config.validation.every is None:
        return None
    kept = held_out_part(source, config.data)
    if len(kept) == 0:
        raise DataError(f"data.held_out {config.data.held_out} of {len(source)} images keeps none")
    return Validation(kept, config, division=division, ranks=ranks)
