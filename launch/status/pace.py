"""How fast a run goes, by its own records, and how long it has yet to go."""

from collections import deque
from dataclasses import dataclass, field

from configs.run.records import Record

# A pace is that of the newest records, so many of them.
RECENT = 32


@dataclass(kw_only=True)
class Pace:
    """Steps against the wall clock over an attempt's newest records; saves and samples included."""

    _attempt: int | None = None
    _seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))

    def take(self, record: Record) -> None:
        """Look at the next record of the run."""
        if record.get("attempt") != self._attempt:
            # What lies between two attempts is no training.
            self._attempt = record.get("attempt")
            self._seen.clear()
        if "event" not in record and isinstance(record.get("step"), int):
            self._seen.append((float(record["time"]), int(record["step"])))

    @property
    def steps_per_s(self) -> float | None:
        """Steps per second of wall time; None before two records tell it."""
        if len(self._seen) < 2:
            return None
        (begin, first), (end, last) = self._seen[0], self._seen[-1]
        return (last - first) / (end - begin) if end > begin and last > first else None

    def eta_s(self, *, step: int | None, steps: int | None) -> int | None:
        """Seconds until `steps` at this pace."""
        if step is None or not steps or self.steps_per_s is None:
            return None
        return round(max(0, steps - step) / self.steps_per_s)
