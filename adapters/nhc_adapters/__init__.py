"""Adapters: one report into what each world understands. They satisfy the Protocols of nhc.marks.ports.adapter."""
