"""The commands of `nhc.store`."""
