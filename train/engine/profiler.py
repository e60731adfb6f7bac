"""Name the parts of a step in the traces of torch.profiler (`train.parts.profile`)."""

from torch.profiler import record_function


def region(name: str) -> record_function:
    """Return a context manager that names a part of a step in the trace."""
    return record_function(f"region: {name}")
