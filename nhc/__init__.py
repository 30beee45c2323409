"""nhc: one check engine for the health of GPU, AI and HPC cluster nodes.

The package re-exports nothing, so that importing it costs nothing: a scheduler starts it
before every job. Import what you need from its modules; `nhc.lab.testing` is the public test kit.
"""

__version__ = "0.1.0"
