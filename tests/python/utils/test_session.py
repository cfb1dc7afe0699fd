"""What is a session, and what is a script."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tfdistr.utils import session


@pytest.mark.parametrize(("shell", "lives_on"), [(None, False), (object(), True)])
def test_a_script_may_import_ipython(monkeypatch, shell, lives_on):
    monkeypatch.setattr(session._Session, "lives_on", None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert session.is_session() is lives_on


def test_r_says_what_it_is(monkeypatch):
    monkeypatch.setattr(session._Session, "lives_on", None)
    session.lives_on(True)
    assert session.is_session()
    session.lives_on(False)
    assert not session.is_session()
