"""Each page of the site loads, leads where it says, and fits a phone."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from selenium.webdriver.common.by import By
from site_browser import SITE, Browser

pytestmark = [pytest.mark.slow(reason="a browser opens each page twice"), pytest.mark.timeout(600)]

PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html")) if SITE.is_dir() else []
_RUNS_OVER = """
  const width = document.documentElement.clientWidth;
  return document.documentElement.scrollWidth > width + 1 ? document.documentElement.scrollWidth : 0;
"""


class _Page(HTMLParser):
    """The links of a page, what it loads, and the names of its places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        self.places.update(filter(None, (named.get("id"), named.get("name"))))
        if tag == "a" and named.get("href"):
            self.links.append(named["href"])
        if tag in ("script", "img", "link", "iframe"):
            self.loads += filter(None, (named.get("src"), named.get("href")))


def _target(page: str, link: str) -> Path:
    """The file to which a link of a page leads. A server shows the page 404.html at any address."""
    if not link:
        return SITE / page
    if page == "404.html":
        return SITE / unquote(link).lstrip("/") if link != "/" else SITE / "index.html"
    return ((SITE / page).parent / unquote(link)).resolve()


def test_links_and_what_pages_load_are_in_the_site():
    pages = {path: _Page((SITE / path).read_text()) for path in PAGES}
    wrong = []
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            url = urlsplit(link)
            if url.scheme in ("http", "https", "mailto") and link in page.links:
                continue
            if url.scheme or url.netloc:
                wrong.append(f"{path} loads {link}")
                continue
            target = _target(path, url.path)
            if not target.is_file():
                wrong.append(f"{path}: {link}")
            elif url.fragment and not url.fragment.startswith("__") and target.suffix == ".html":
                other = pages[str(target.relative_to(SITE))]
                if unquote(url.fragment) not in other.places:
                    wrong.append(f"{path}: {link} has no such place")
    assert len(PAGES) > 100
    assert not wrong, "\n".join(wrong)


def test_each_page_loads_without_errors_and_fits_a_phone(browser: Browser):
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
