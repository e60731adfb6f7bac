"""From a config to a job on a cluster, and from a run to what became of it."""
