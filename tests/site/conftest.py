"""The built site in a browser."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

sys.path.insert(0, str(Path(__file__).parent))
from site_browser import FLAGS, SITE, Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        pytest.skip("no Chromium: tools/setup-site.sh browser installs it")
    assert (SITE / "index.html").is_file(), "make site builds the site"
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = programs[0]
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        environment = os.environ | {"HOME": profile}
        started = Browser(options=options, service=Service(programs[1], env=environment))
        try:
            yield started
        finally:
            started.quit()
