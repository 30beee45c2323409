"""Periodic work over a store: who leads, the rounds of a service, several services in one process, pruning."""
