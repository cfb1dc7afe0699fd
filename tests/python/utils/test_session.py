"""What is a session, and what is a script."""

import sys
from types import SimpleNamespace

import pytest

from tfdistr.utils import processes


@pytest.mark.parametrize(("shell", "lives_on"), [(None, False), (object(), True)])
def test_a_script_may_import_ipython(monkeypatch, shell, lives_on):
    monkeypatch.setattr(processes._Session, "lives_on", None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert processes.is_session() is lives_on


def test_r_says_what_it_is(monkeypatch):
    monkeypatch.setattr(processes._Session, "lives_on", None)
    processes.lives_on(True)
    assert processes.is_session()
    processes.lives_on(False)
    assert not processes.is_session()
