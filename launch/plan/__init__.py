"""Find the problems of a run before it waits in a queue."""
