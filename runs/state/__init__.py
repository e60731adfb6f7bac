"""How a run is and how it ended: one fold over events, Slurm's word and the traces of processes."""
