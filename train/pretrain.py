"""One attempt at a pretraining run, from its folder to its last event."""

from configs.batch import divide
from configs.load import expect
from configs.run import RunFolder
from configs.schema import Pretrain
from train.checkpoint import TrainingState, load_newest
from train.clocks import Clocks
from train.data.loader import microbatches
from train.data.source import DataError, open_source, training_part
from train.dist import Ranks, process_group, read_ranks
from train.ema import Average
from train.facts import placement, training_facts
from train.failure import leave_note
from train.journal import Journal, log, start_logging
from train.loop import Trainer
from train.network import build_network, share
from train.optimizer import make_optimizer
from train.stopping import Watch, Wish

_EVENTS = {Wish.GO_ON: "done", Wish.PAUSE: "paused", Wish.STOP: "stopped"}


def pretrain(run: RunFolder, *, attempt: int) -> int:
    """Carry out the attempt; the exit code (0 whenever the run folder is in order)."""
    ranks = read_ranks()
    config = expect(run.config(attempt), Pretrain, source=run.path)
    start_logging(run.attempt(attempt), rank=ranks.rank, console_ranks=config.log.console_ranks)
    try:
        _run(run, config, ranks, attempt=attempt)
    except Exception as error:
        leave_note(run.attempt(attempt), error, rank=ranks.rank)
        log.exception("rank %d failed: %s", ranks.rank, error)
        return 1
    return 0


def _run(run: RunFolder, config: Pretrain, ranks: Ranks, *, attempt: int) -> None:
    clocks = Clocks(ranks.device)
    watch = Watch(run, attempt=attempt)
    division = divide(config, world=ranks.world)
    source = training_part(open_source(config.data), config.data)
    if len(source) < config.train.global_batch:
        raise DataError(
            f"{len(source)} training images are fewer than train.global_batch "
            f"{config.train.global_batch}"
        )
    with process_group(ranks):
        network = build_network(config).to(ranks.device)
        model = share(network, division=division, ranks=ranks)
        optimizer = make_optimizer(network, config.optimizer)
        average = Average(network, decay=config.train.ema_decay, warmup=config.train.ema_warmup)
        state = TrainingState(network=network, average=average, optimizer=optimizer, clocks=clocks)
        resumed = load_newest(run.checkpoints, state)
        if config.train.compile:
            for block in network.blocks:
                block.compile()
        places = placement(ranks)
        journal = Journal(run, attempt=attempt, rank=ranks.rank, tensorboard=config.log.tensorboard)
        if places is not None:
            run.note(attempt, placement=places, **training_facts(config, division, network))
        journal.event("started", step=state.step, images=state.images)
        if resumed:
            log.info("resumed from step %d", state.step)
        trainer = Trainer(
            config=config,
            division=division,
            ranks=ranks,
            run=run,
            network=network,
            model=model,
            optimizer=optimizer,
            average=average,
            state=state,
            clocks=clocks,
            journal=journal,
            watch=watch,
            batches=microbatches(
                source,
                config,
                division=division,
                rank=ranks.rank,
                images=state.images,
                pin=ranks.device.type == "cuda",
            ),
        )
        wish = trainer.train()
        if wish is Wish.LEAVE:
            log.warning("a newer attempt has begun: leaving without a save")
        else:
            journal.event(_EVENTS[wish], step=state.step, images=state.images)
        journal.close()
