"""Proves GPUs in a second, in one process for each GPU, which calls libcuda or AMD's libamdhip64."""
