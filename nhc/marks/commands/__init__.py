"""The commands of `nhc.marks`."""
