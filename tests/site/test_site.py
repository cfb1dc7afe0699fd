"""Each page of the site loads and fits a phone. Links: MkDocs refuses those that lead nowhere."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

pytestmark = [pytest.mark.slow(reason="a browser opens each page"), pytest.mark.timeout(600)]

SITE = Path(__file__).parents[2] / "site"
# The browser reaches no other machine.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--window-size=390,844",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        pytest.skip("no Chromium: tools/setup-site.sh browser installs it")
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = programs[0]
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        with webdriver.Chrome(options, Service(programs[1], env=os.environ | {"HOME": profile})) as started:
            yield started


def test_each_page_loads_without_errors_and_fits_a_phone(browser):
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    pages = [page for page in sorted(SITE.rglob("*.html")) if page.name != "404.html"]  # a server shows that
    assert len(pages) > 100, "make site builds the site"
    wrong = []
    for page in pages:
        browser.get(page.as_uri())
        wide, window = (
            browser.execute_script(f"return document.documentElement.{of}Width")
            for of in ("scroll", "client")
        )
        wrong += [f"{page} is {wide} wide on a phone of {window}"] * (wide > window + 1)
        wrong += [
            f"{page}: {said['message']}" for said in browser.get_log("browser") if said["level"] == "SEVERE"
        ]
        # The report of `make proof` is a page of its own, without the site around it.
        wrong += (
            [] if browser.find_elements(By.CSS_SELECTOR, "article h1, body > h1") else [f"{page}: no heading"]
        )
    assert not wrong, "\n".join(wrong)
