"""The check of the words in the documents finds what it should, and nothing in code."""

import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from lint_words import found


@pytest.mark.parametrize(
    "text",
    [
        "A run goes\non with its model.",
        "It ends with the same bits.",
        "The processes of Slurm start.",
        "This holds for R, too.",
        "It takes some 2 seconds.",
        "# Threads of others",
        "## What the hosts need",
        "[Data](data.md) has files.",
        "Data does not travel through ssh.",
        "A compiled model may take its place.",
        "By MPI it works.",
    ],
)
def test_a_place_is_found(text: str) -> None:
    [(line, _, better)] = found("First.\n" + text)
    assert (line, bool(better)) == (2, True)


@pytest.mark.parametrize("text", ["`the same bits`", "```text\ngo on, too.\n```", "[a](the-same-bits.md)"])
def test_code_and_links_are_left_out(text: str) -> None:
    assert not list(found(text))
