"""What is a session, and what is a script."""

import sys
from types import SimpleNamespace

import pytest

from tfdistr.utils import interactive


@pytest.mark.parametrize(("shell", "lives_on"), [(None, False), (object(), True)])
def test_a_script_may_import_ipython(monkeypatch, shell, lives_on):
    monkeypatch.setattr(interactive._Session, "lives_on", None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert interactive.is_session() is lives_on


def test_r_says_what_it_is(monkeypatch):
    monkeypatch.setattr(interactive._Session, "lives_on", None)
    interactive.lives_on(True)
    assert interactive.is_session()
    interactive.lives_on(False)
    assert not interactive.is_session()
