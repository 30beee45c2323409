"""The commands of `nhc.node`."""
