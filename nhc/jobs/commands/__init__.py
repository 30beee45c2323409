"""The commands of `nhc.jobs`."""
