"""The commands of `nhc.hooks`."""
