"""The keys of every kind of run: question, seed, logging and resources."""

import re

from pydantic import Field, field_validator

from configs.schema.key import KeyGroup, key
from configs.schema.training import Log, Resources

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,79}")


class Run(KeyGroup):
    """A run of some kind. A subclass fixes `kind`, which is also the name of its sbatch file."""

    kind: str
    name: str | None = key(None, "first part of the name of the run's folder; null: the YAML's")
    question: str | None = key(None, "question that this run answers; stored with it")
    seed: int = key(0, "seed of everything random", "loss", ge=0, lt=2**63, short="s")
    resources: Resources = Field(default_factory=Resources)
    log: Log = Field(default_factory=Log)

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str | None) -> str | None:
        if name is not None and not _NAME.fullmatch(name):
            raise ValueError(
                f"name {name!r}: expected at most 80 letters, digits and . _ + = -, the first a "
                "letter or a digit"
            )
        return name

    def last_step(self) -> int:
        """Return the step at which the run is done; 0 for work of fixed length."""
        return 0
