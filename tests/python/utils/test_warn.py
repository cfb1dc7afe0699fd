"""What tfdistr logs as a warning is a warning of Python in the session."""

import logging
import warnings

import pytest

from tfdistr import TfdistrWarning
from tfdistr.utils.warn import NOTE, WARNINGS, user_warned, warn, warn_by

log = logging.getLogger("tfdistr")


def test_it_is_about_the_code_of_the_user():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log.warning("no %s", "number")
        warn("no rain", worker=1)
    assert [str(one.message) for one in caught] == ["no number", "Worker 1: no rain"]
    assert {one.filename for one in caught} == {__file__}
    assert [one.message.worker for one in caught] == [None, 1]


def test_a_filter_makes_it_an_error_of_the_call_that_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error", TfdistrWarning)
        with pytest.raises(TfdistrWarning, match="no number"):
            log.warning("no number")


def test_how_far_something_is_is_no_warning(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log.warning("Waiting for worker %d.", 1, extra=NOTE)
    assert capsys.readouterr().err == "Waiting for worker 1.\n"


def test_a_session_of_another_language_warns_in_its_own_way(monkeypatch):
    for name in ("tell", "tell_of_user"):
        monkeypatch.setattr(WARNINGS, name, None)
    told: list[str] = []
    warn_by(told.append)
    log.warning("no number")
    user_warned("no rain")
    assert told == ["no number", "no rain"]
