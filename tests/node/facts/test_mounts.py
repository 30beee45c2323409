import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.mounts import Mount, at, mounts, parse_mounts, unescape

MOUNTS = r"""proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0
/dev/mapper/rhel-root / xfs rw,seclabel,relatime,attr2,inode64,logbufs=8,logbsize=32k,noquota 0 0
/etc/auto.home /home autofs rw,relatime,fd=13,pgrp=2316,timeout=300,minproto=5,maxproto=5,indirect,pipe_ino=42 0 0
bluearc0:/home/alice /home/alice nfs4 rw,relatime,vers=4.1,rsize=1048576,hard,proto=tcp,addr=10.0.0.1 0 0
10.2.0.1@o2ib,10.2.0.2@o2ib:/scratch /scratch lustre rw,checksum,flock,user_xattr,lruresize,lazystatfs,verbose 0 0
//nas/my\040share /mnt/my\040share\134x cifs rw,relatime,vers=3.0 0 0
tmpfs /scratch tmpfs ro,size=1024k 0 0
"""


def test_each_kind_of_mount():
    found = {mount.point: mount for mount in mounts(FakeHost({"/proc/mounts": MOUNTS}))}

    assert found["/"] == Mount(
        "/dev/mapper/rhel-root", "/", "xfs", "rw,seclabel,relatime,attr2,inode64,logbufs=8,logbsize=32k,noquota"
    )
    assert found["/home/alice"].source == "bluearc0:/home/alice"
    assert found["/home"].type == "autofs"


def test_escapes_are_decoded():
    found = parse_mounts(MOUNTS)

    assert at(found, "/mnt/my share\\x") is not None
    assert unescape(r"a\011b\012c\043\999\04") == "a\tb\nc#\\999\\04"


def test_of_two_mounts_at_one_place_the_last_counts():
    assert at(parse_mounts(MOUNTS), "/scratch").type == "tmpfs"


def test_a_place_is_found_with_a_slash_at_its_end_but_not_above_or_below():
    found = parse_mounts(MOUNTS)

    assert at(found, "/scratch/") is not None
    assert at(found, "/") is not None
    assert at(found, "/scratch/sub") is None
    assert at(found, "/mnt") is None


def test_read_only_is_an_option_of_its_own():
    assert Mount("a", "/a", "ext4", "ro,relatime").read_only
    assert not Mount("a", "/a", "ext4", "rw,errors=remount-ro").read_only


def escape(text):
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\" else c for c in text)


@pytest.mark.thorough
@given(st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"]), min_size=1)] * 4)))
def test_what_the_kernel_escapes_comes_back(fields):
    text = "".join(" ".join(escape(field) for field in mount) + " 0 0\n" for mount in fields)

    assert parse_mounts(text) == tuple(Mount(*mount) for mount in fields)


@given(st.text())
def test_junk_never_raises(text):
    parse_mounts(text)
