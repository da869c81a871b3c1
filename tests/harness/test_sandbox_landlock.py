"""What Landlock gives a guest, whatever the kernel's ABI, and what its attributes and messages may not carry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ArenaError
from harness.sandbox.guest_files import open_guest_root
from harness.sandbox.landlock import EXECUTE, MAKE_REG, READ_FILE, WRITE_FILE, handled_rights, rules
from tests.harness.jail_stand import IS_ROOT, best_landlock, remade, run


@pytest.mark.parametrize(
    "attempt",
    ["os.utime(p, (1, 1))", "os.chmod(p, 0o777)", "os.setxattr(p, 'user.note', b'1')", "os.chown(p, -1, os.getgid())"],
)
def test_no_note_can_be_left_in_the_attributes_of_the_guest_root(attempt):
    source = f"import os\ndef agent_main(_):\n p = os.__file__\n {attempt}"
    ended = run(source, None, best_landlock())
    assert ended.error.startswith(("PermissionError", "OSError")), ended


def test_a_place_that_other_uids_cannot_enter_is_a_fault_of_ours_and_not_a_weaker_jail(tmp_path):
    if not IS_ROOT:
        pytest.skip("an ordinary user's guest enters what its user can")
    tmp_path.chmod(0o700)
    with pytest.raises(ArenaError) as caught:
        run("def agent_main(p): return 1", None, remade(best_landlock(), root=open_guest_root(tmp_path)))
    assert caught.value.failure.code == "V2002" and "confined" in caught.value.failure.detail


def test_an_abi_masks_what_it_does_not_know():
    counts = [handled_rights(abi).bit_count() for abi in (0, 1, 2, 3, 4, 5, 6, 99)]
    assert counts == [0, 13, 14, 15, 15, 16, 16, 16]


@given(st.integers(1, 12))
def test_rules_never_ask_for_a_right_that_is_not_handled_and_nothing_is_both_written_and_run(abi):
    given_rules = dict(rules(Path("/guest"), Path("/work"), abi))
    for rights in given_rules.values():
        assert rights & ~handled_rights(abi) == 0 and rights & READ_FILE
        assert not (rights & EXECUTE and rights & (WRITE_FILE | MAKE_REG))
    assert {path for path, rights in given_rules.items() if rights & WRITE_FILE} == {"/work", "/dev/null"}
    assert not [path for path in given_rules if path.startswith(("/proc", "/etc", "/usr", "/sys", "/dev/shm"))]
