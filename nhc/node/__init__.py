"""Judges this node: facts, checks, the kernel's log, the engine."""
