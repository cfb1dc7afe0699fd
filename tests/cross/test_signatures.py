"""The functions of R and Python have the same arguments, defaults, first sentences and errors."""

import json

import pytest
from kinds import KINDS
from signatures import (
    all_differences,
    not_in,
    not_needed,
    read_r,
    table,
)

import tfdistr

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def said():
    return read_r()


@pytest.fixture(scope="module")
def found(said):
    return all_differences(tfdistr, said, table())


def as_lines(differences):
    return "\n".join(map(json.dumps, differences))


def test_all_differences_are_in_the_table(found):
    left = not_in(table(), found)
    assert not left, f"R and Python differ:\n{as_lines(left)}"


def test_each_entry_of_the_table_is_a_difference(found):
    left = not_needed(table(), found)
    assert not left, f"These are no differences of R and Python:\n{as_lines(left)}"


def test_an_error_of_each_kind_has_its_class_in_r(said):
    for kind in KINDS.keys() - {"error"}:
        assert said["classes"][kind] == [f"tfdistr_error_{kind}", "tfdistr_error"]
    assert said["classes"]["error"] == ["tfdistr_error"]
