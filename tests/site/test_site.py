"""Each page of the site loads and fits a phone. Links: MkDocs refuses those that lead nowhere."""

import pytest
from selenium.webdriver.common.by import By
from site_browser import SITE, Browser

pytestmark = [pytest.mark.slow(reason="a browser opens each page twice"), pytest.mark.timeout(600)]

PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html")) if SITE.is_dir() else []
_RUNS_OVER = """
  const width = document.documentElement.clientWidth;
  return document.documentElement.scrollWidth > width + 1 ? document.documentElement.scrollWidth : 0;
"""


def test_each_page_loads_without_errors_and_fits_a_phone(browser: Browser):
    assert len(PAGES) > 100
    wrong = []
    for path in PAGES:
        if path == "404.html":  # only a server shows it
            continue
        browser.look(390, 844)
        browser.page(path)
        over = browser.execute_script(_RUNS_OVER)
        if over:
            wrong.append(f"{path} is {over} wide on a phone of 390")
        browser.look()
        wrong += [
            f"{path}: {said['message']}" for said in browser.get_log("browser") if said["level"] == "SEVERE"
        ]
        # The report of `make proof` is a page of its own, without the site around it.
        if not browser.find_elements(By.CSS_SELECTOR, "article h1, body > h1"):
            wrong.append(f"{path} has no heading")
    assert not wrong, "\n".join(wrong)
