"""Which errors mean that this machine, or this user, has nothing left: no fault of a file or of the other side."""

from __future__ import annotations

import errno

NOTHING_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""No descriptor or no memory is left: the same may be had a moment later."""
