"""Benchmarks against a peer, or against a simpler version, interleaved in one process."""
