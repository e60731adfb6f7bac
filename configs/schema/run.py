"""The keys of every kind of run: question, seed, logging and resources."""

from pydantic import Field

from configs.schema.key import KeyGroup, key
from configs.schema.training import Log, Resources


class Run(KeyGroup):
    """A run of some kind. A subclass fixes `kind`, which is also the name of its sbatch file."""

    kind: str
    question: str | None = key(None, "question that this run answers; stored with it")
    seed: int = key(0, "seed of everything random", "loss", ge=0, lt=2**63)
    resources: Resources = Field(default_factory=Resources)
    log: Log = Field(default_factory=Log)

    def last_step(self) -> int:
        """Return the step at which the run is done; 0 for work of fixed length."""
        return 0
