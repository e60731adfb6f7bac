"""Ours beside a peer, or beside less, in one run."""
