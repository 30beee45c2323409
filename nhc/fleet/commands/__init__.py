"""The commands of `nhc.fleet`."""
