"""Wall time of a run in cumulative seconds by purpose, kept across attempts."""

import time

import torch


class Clocks:
    """Books all time since construction to one purpose each; `data` also counts as `train`."""

    PURPOSES = ("setup", "train", "data", "save", "sample", "eval", "profile")

    def __init__(self, device: torch.device, *, purposes: tuple[str, ...] = PURPOSES) -> None:
        self._device = device
        self._mark = time.perf_counter()
        self._diverted: str | None = None
        self.seconds = dict.fromkeys(purposes, 0.0)

    def lap(self, purpose: str, *, drain: bool = False) -> None:
        """Book the time since the last lap; with `drain`, wait for the device first."""
        if drain and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        purpose = self._diverted or purpose
        self.seconds[purpose] += now - self._mark
        if purpose == "data":
            self.seconds["train"] += now - self._mark
        self._mark = now

    def divert(self, purpose: str | None) -> None:
        """Book all following laps to `purpose`, until this is called with None."""
        self._diverted = purpose

    def fields(self) -> dict[str, float]:
        """Return the clocks as fields of a record: `train_s` and so on."""
        return {f"{name}_s": round(seconds, 6) for name, seconds in self.seconds.items()}
