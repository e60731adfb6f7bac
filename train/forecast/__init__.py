"""What a run will need and do, before it is queued: memory per rank, micro batch, images/s."""
