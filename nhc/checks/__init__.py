"""The built-in checks, one family a module; `nhc.check.find` imports a family when a configuration names it."""

FAMILIES = (
    "cmd",
    "dmi",
    "file",
    "fs",
    "fs_mount",
    "hw",
    "hw_mem",
    "moab",
    "net",
    "ps",
    "ps_load",
    "ps_service",
    "ps_usage",
    "ps_users",
)
"""Every module here, for listings; a test holds it to the directory."""
