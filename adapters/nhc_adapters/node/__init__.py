"""Repairs on the node itself: a GPU reset, a driver reload, a restart of services."""
