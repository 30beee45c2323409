"""Repairs on the node itself: a GPU reset, a driver loaded anew, services started again."""
