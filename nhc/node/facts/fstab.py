"""The file systems of this node by /etc/fstab, and the kinds of the mounted ones."""

from __future__ import annotations

from nhc.core.host import Host
from nhc.core.light import TYPE_CHECKING, NamedTuple
from nhc.node.facts.mounts import Mount, unescape

if TYPE_CHECKING:
    from typing import FrozenSet, List, Tuple

_REMOTE = frozenset(
    (
        "nfs", "nfs3", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "cifs", "smb2", "smb3", "smbfs",
        "wekafs", "panfs", "pvfs2", "orangefs", "afs", "auristorfs", "coda", "9p", "glusterfs", "virtiofs", "vboxsf",
        "daos", "quobyte", "moosefs", "dvs", "cvfs", "snfs", "ocfs2", "gfs2", "acfs", "scoutfs", "yrfs",
    )
)  # fmt: skip
"""Types whose data lies on another machine or is shared with one (as by the locks of gfs2 and ocfs2)."""
_OF_KERNEL = frozenset(
    (
        "autofs", "bdev", "binder", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "cpuset", "debugfs",
        "devpts", "devtmpfs", "efivarfs", "functionfs", "fusectl", "hugetlbfs", "mqueue", "nfsd", "nsfs", "proc",
        "pstore", "resctrl", "rpc_pipefs", "secretmem", "securityfs", "selinuxfs", "smackfs", "sysfs", "tracefs",
        "usbfs", "xenfs",
    )
)  # fmt: skip
"""Types of the kernel's own interfaces: no data. autofs is one of them: reading it mounts something."""
_LOCAL = frozenset(
    (
        "tmpfs", "ramfs", "rootfs", "overlay", "overlayfs", "aufs", "squashfs", "erofs", "cramfs", "romfs", "iso9660",
        "udf", "ecryptfs", "fuseblk", "zfs", "bcachefs", "ext2", "ext3", "ext4", "xfs", "jfs", "btrfs", "f2fs", "ufs",
        "vfat", "msdos", "exfat", "ntfs3", "nilfs2", "ubifs", "jffs2", "reiserfs",
    )
)  # fmt: skip
"""Types on this node's own disks or in its memory."""
_LOCAL_PROGRAMS = ("lxcfs", "portal", "snapfuse", "squashfuse", "gvfsd", "gvfs", "fuse-overlayfs", "unionfs",
                   "mergerfs", "bindfs", "vmware-vmblock", "fuse2fs", "ntfs-3g", "archivemount", "encfs", "gocryptfs",
                   "rofiles-fuse", "dwarfs", "erofsfuse", "ratarmount", "zfs-fuse", "fuse-archive", "appimage",
                   "revokefs", "kio-fuse", "fuseiso", "fuse-zip")  # fmt: skip
"""The starts or ends of the names of FUSE programs that serve this node's own data. All others access another
machine."""
REMOTE, LOCAL, OF_KERNEL, UNKNOWN = "remote", "local", "kernel", "unknown"


def place(mount: Mount) -> str:
    """Where the data of a mount is: REMOTE, LOCAL, OF_KERNEL, or UNKNOWN for an unknown type.

    No list of types is complete: the caller decides what an unknown type is, and never treats it as absent.
    """
    if mount.type in _REMOTE:
        return REMOTE
    if mount.type == "fuse" or mount.type.startswith("fuse."):
        # Programs without a subtype give themselves as the source (fuse(8), fsname and subtype).
        program = (mount.type[5:] or mount.source.rsplit("/", 1)[-1]).lower()
        return LOCAL if program.startswith(_LOCAL_PROGRAMS) or program.endswith(_LOCAL_PROGRAMS) else REMOTE
    if mount.type in _OF_KERNEL:
        return OF_KERNEL
    return LOCAL if mount.type in _LOCAL else UNKNOWN


def may_hang(mount: Mount) -> bool:
    """Whether a mount may wait for another machine: REMOTE, or UNKNOWN with a mount point of its own."""
    where = place(mount)
    return where == REMOTE or (where == UNKNOWN and mount.point != "/")


def is_users_own(mount: Mount) -> bool:
    """Whether a user mounted this with fusermount for private use (fuse(4)): even root has no access.

    With `allow_other` all users have access, as to rclone, CVMFS or goofys mounted by a service's account.
    """
    options = mount.options.split(",")
    of_user = any(option.startswith("user_id=") and option != "user_id=0" for option in options)
    return of_user and "allow_other" not in options


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
    """The entries; none if there is no such file. Raises OSError if it cannot be read."""
    try:
        return parse_fstab(host.read("/etc/fstab"))
    except FileNotFoundError:
        return ()


def holds_data(mount: Mount) -> bool:
    """Whether a mount is a file system on a disk or a server, rather than in memory or one of the kernel's own."""
    return mount.source.startswith("/dev/") or may_hang(mount) or mount.type in ("zfs", "bcachefs")


_TAGS = {"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel"}


def parse_swaps(text: str) -> Tuple[str, ...]:
    """The files and devices of /proc/swaps."""
    return tuple(unescape(line.split()[0]) for line in text.splitlines()[1:] if line.split())


def swap_device(source: str) -> str:
    """The udev link of the device that `UUID=...`, `LABEL=...` or the like names; another source unchanged."""
    tag, equals, value = source.partition("=")
    value = value.strip('"')
    return f"/dev/disk/{_TAGS[tag]}/{value}" if equals and tag in _TAGS else source


def swaps_in_use(host: Host) -> FrozenSet[str]:
    """What is used as swap, links followed; none if the kernel has no swap. Raises OSError."""
    try:
        names = parse_swaps(host.read("/proc/swaps"))
    except FileNotFoundError:
        return frozenset()
    return frozenset(names) | frozenset(host.realpath(name) for name in names)
