"""What every kind of run has: its question, its seed, what it logs and what it runs on."""

from pydantic import Field

from configs.schema.key import KeyGroup, key
from configs.schema.training import Log, Resources


class Run(KeyGroup):
    """A run of some kind. A subclass fixes `kind`, the name that its sbatch file has too."""

    kind: str
    question: str | None = key(None, "what this run is to answer; kept with it")
    seed: int = key(0, "seed of all that chance decides", "loss", ge=0, lt=2**63)
    resources: Resources = Field(default_factory=Resources)
    log: Log = Field(default_factory=Log)

    def last_step(self) -> int:
        """The step at which it is done; 0 for work that cannot be made longer."""
        return 0
