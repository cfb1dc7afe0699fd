"""All errors of the package, as its code has them: whole sentences, and a fix that says what to do."""

import re
import sys

import pytest
from paths import ROOT

from tfdistr.r.messages import in_r

sys.path.insert(0, str(ROOT / "tools" / "site"))
from message_pages import TOPICS, pages
from messages import ERRORS, Message, messages

MESSAGES = messages()
#: What states something, where a fix says what to do.
STATES = re.compile(r"(A|An|Each|For|If|Images?|It|Its|That|The|There|They|This|TensorFlow|You)\b")
#: What only Python's code has; the command line, which is run from a shell, tells nothing to R.
PYTHON = re.compile(
    r"\b(None|True|False|lambda|builtins)\b|\btfdistr\.\w+\(|(?<![-\w])[a-z]\w*=[\w\"'{\[(]|\)\.\w+\("
)


def wrong_with(said: Message) -> str | None:
    """What is wrong with the style of a message."""
    if not said.message.endswith((".", "}")):
        return "what failed is no sentence"
    if said.fix and (STATES.match(said.fix) or not re.match(r"[A-Z{]|pip install ", said.fix)):
        return "the fix does not say what to do"
    known = (
        said.fix or said.message == "A checkpoint must be whole, and of this run."
    )  # the one before is used
    return None if known else "there is no fix"


def test_each_says_what_failed_and_what_to_do() -> None:
    assert len(MESSAGES) > 400
    of_python = [each for each in MESSAGES if not each.place.startswith("R/")]
    assert {each: wrong for each in of_python if (wrong := wrong_with(each))} == {}


def test_those_of_r_are_whole_and_have_known_classes() -> None:
    of_r = [each for each in MESSAGES if each.place.startswith("R/")]
    assert len(of_r) > 20
    assert [each for each in of_r if each.error not in ERRORS or re.search(r"\\|%", " ".join(each))] == []
    assert 'type = "{...}" needs a fit whose `y` had classes.' in [each.message for each in of_r]


@pytest.mark.parametrize(
    ("message", "fix"),
    [("No end", "Pass 1."), ("A rule.", ""), ("A rule.", "The value is 1."), ("A rule.", "pass 1.")],
)
def test_another_style_is_seen(message: str, fix: str) -> None:
    assert wrong_with(Message("file.py:1", "ArgumentError", message, "2", fix))


def test_no_message_has_code_of_python_in_r() -> None:
    for each in MESSAGES:
        if not each.place.startswith(("R/", "python/tfdistr/cli/")):
            for part in (each.message, each.received, each.fix):
                said = in_r(re.sub(r"\{(\w+|\.\.\.)\}", "7", part))
                assert not PYTHON.search(re.sub(r"\"[^\"]*\"|'[^']*'", "''", said)), each


def test_each_message_is_a_heading_of_one_page():
    made = pages()
    assert len(made) == len(TOPICS)
    headings = [
        heading
        for text in made.values()
        for heading in re.findall(r"^## (.+) \{#m\d+\}$", text, re.MULTILINE)
    ]
    assert len(headings) > 500
    assert len(headings) - len(set(headings)) < 10  # the same words may be of two subjects
    assert re.search(
        r"^## `workers` must be a multiple of the number of hosts\. \{#m\d+\}$",
        made["messages/clusters.md"],
        re.MULTILINE,
    )
    of_lock = made["messages/checkpoints.md"].partition(
        "## Only one job at a time may write to a run directory."
    )[2]
    assert "`CheckpointError` (in R `tfdistr_error_checkpoint`)" in of_lock.partition("\n## ")[0]
    assert "* *Fix*: Stop one of the two jobs, or pass another `run_dir`." in of_lock.partition("\n## ")[0]
    for topic in TOPICS.values():
        assert (ROOT / "docs" / topic.guide).is_file()
