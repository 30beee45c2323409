"""What /etc/fstab promises of this node's file systems, and which of the mounted ones are of what kind."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.mounts import Mount, unescape

if TYPE_CHECKING:
    from typing import List, Tuple

NETWORK = frozenset(
    (
        "nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb3", "wekafs", "panfs", "pvfs2",
        "afs", "9p", "glusterfs", "fuse.glusterfs", "fuse.ceph", "fuse.sshfs", "fuse.juicefs", "fuse.s3fs", "virtiofs",
        "daos", "fuse.daos", "fuse.gcsfuse", "fuse.blobfuse2", "quobyte", "fuse.quobyte", "moosefs", "fuse.mfs",
    )
)  # fmt: skip
"""Types whose data lies on another machine, so that they can stop answering while this one is well."""


class FstabEntry(NamedTuple):
    """One line of /etc/fstab (fstab(5)). `point` is `none` or the like where there is no mount point, as of swap."""

    source: str
    point: str
    type: str
    options: Tuple[str, ...]

    @property
    def read_only(self) -> bool:
        """Whether the line asks for a read-only mount: the last of `ro` and `rw` counts."""
        asked = [option for option in self.options if option in ("ro", "rw")]
        return bool(asked) and asked[-1] == "ro"


def parse_fstab(text: str) -> Tuple[FstabEntry, ...]:
    """The entries. Lines with fewer than three fields are left out."""
    entries: List[FstabEntry] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 3 and not fields[0].startswith("#"):
            options = tuple(fields[3].split(",")) if len(fields) > 3 else ("defaults",)
            point = unescape(fields[1]).rstrip("/") or "/"
            entries.append(FstabEntry(unescape(fields[0]), point, fields[2], options))
    return tuple(entries)


def fstab(host: Host) -> Tuple[FstabEntry, ...]:
    """The entries; none where there is no such file. Raises OSError where it cannot be read."""
    try:
        return parse_fstab(host.read("/etc/fstab"))
    except FileNotFoundError:
        return ()


def holds_data(mount: Mount) -> bool:
    """Whether a mount is a file system on a disk or a server, rather than one of the kernel's own."""
    return mount.source.startswith("/dev/") or mount.type in NETWORK or mount.type in ("zfs", "bcachefs")
