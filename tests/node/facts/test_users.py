import pytest
from hypothesis import given
from hypothesis import strategies as st

from nhc.lab.testing.fake_host import FakeHost
from nhc.node.facts.users import max_system_uid, parse_max_system_uid, parse_passwd, user_id, user_name

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
toor:x:0:0::/:/bin/sh
rpc:x:32:32:R:/:/sbin/nologin
+::::::
# note
bad:x:y:1
"""


def test_users_are_read_and_the_first_of_a_number_names_it():
    users = parse_passwd(PASSWD)

    assert users.by_name == {"root": 0, "toor": 0, "rpc": 32}
    assert users.by_uid == {0: "root", 32: "rpc"}


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    parse_passwd(text)
    parse_max_system_uid(text)


def test_local_users_are_found_without_the_name_service():
    host = FakeHost({"/etc/passwd": PASSWD})
    host.system.users = {"ldapuser": 5000}

    assert (user_id(host, "rpc"), user_name(host, 32)) == (32, "rpc")
    assert (user_id(host, "ldapuser"), user_name(host, 5000)) == (5000, "ldapuser")
    assert (user_id(host, "nobody-knows"), user_name(host, 777)) == (None, "777")
    assert user_id(host, "42") == 42


def test_another_passwd_file_can_be_named():
    host = FakeHost({"/opt/passwd": "svc:x:9:9::/:/bin/sh\n"}, settings={"PASSWD_DATA_SRC": "/opt/passwd"})

    assert user_name(host, 9) == "svc"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("UID_MIN\t\t 1000\nSYS_UID_MAX   499\n", 499),
        ("UID_MIN 1000\n#SYS_UID_MAX 999\n", 999),
        ("SYS_UID_MAX 998\nUID_MIN 1000\n", 998),
        ("UID_MIN 0\n", None),
        ("", None),
    ],
)
def test_last_system_user_by_login_defs(text, limit):
    assert parse_max_system_uid(text) == limit


def test_last_system_user_is_settled_in_order():
    assert max_system_uid(FakeHost({"/etc/login.defs": "UID_MIN 1000\n"}, settings={"MAX_SYS_UID": "200"})) == 200
    assert max_system_uid(FakeHost({"/etc/login.defs": "UID_MIN 1000\n"})) == 999
    assert max_system_uid(FakeHost({"/x": "SYS_UID_MAX 7\n"}, settings={"LOGIN_DEFS_SRC": "/x"})) == 7
    assert max_system_uid(FakeHost()) == 99
