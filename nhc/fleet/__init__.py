"""Sweeps over many nodes: transports, fan-out, folding of equal results, inventories."""
