"""The commands of `nhc.deep`."""
