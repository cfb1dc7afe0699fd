"""Each page of the site loads and fits any screen, and its links lead somewhere."""

import collections
import html
import posixpath
import re

import pytest
from selenium.webdriver.common.by import By
from site_browser import SITE, Browser

pytestmark = [pytest.mark.slow(reason="a browser opens each page"), pytest.mark.timeout(900)]

PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html")) if SITE.is_dir() else []
#: A phone, a tablet, a screen.
WIDTHS = (360, 800, 1600)
#: What a window of this width does not show: of the whole page, of code, tables and pictures.
_CUT_OFF = """
  const parts = ".md-main, .md-content :is(pre > code, .md-typeset__scrollwrap, .diagram)";
  return [...document.querySelectorAll(parts)]
    .filter(part => part.clientWidth && part.scrollWidth > part.clientWidth + 1)
    .map(part => part.textContent.trim().slice(0, 40));
"""
#: Pages that show files and records as they are.
_AS_THEY_ARE = ("source/", "proof/")


def test_each_page_loads_without_errors_and_fits_each_screen(browser: Browser):
    assert len(PAGES) > 100
    wrong = []
    for path in PAGES:
        if path == "404.html":  # only a server shows it
            continue
        browser.page(path)
        for width in WIDTHS:
            browser.look(width)
            cut = browser.execute_script(_CUT_OFF)
            if cut and not path.startswith(_AS_THEY_ARE):
                wrong.append(f"{path} at {width}: {cut}")
        wrong += [
            f"{path}: {said['message']}" for said in browser.get_log("browser") if said["level"] == "SEVERE"
        ]
        if not browser.find_elements(By.CSS_SELECTOR, "article h1"):
            wrong.append(f"{path} has no heading")
    assert not wrong, "\n".join(wrong)


def test_links_lead_to_pages_and_their_parts():
    parts = {path: set(re.findall(r' id="([^"]*)"', (SITE / path).read_text())) for path in PAGES}
    wrong = set()
    for path in PAGES:
        content = (SITE / path).read_text().partition("<article")[2]
        for link in re.findall(r'<a [^>]*href="([^"]*)"', content):
            if path == "404.html" or re.match(r"\w+:", link):
                continue
            target, _, part = html.unescape(link).partition("#")
            page = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            if not (SITE / page).exists() or (part and page in parts and part not in parts[page]):
                wrong.add(f"{path}: {link}")
    assert not wrong, "\n".join(sorted(wrong))


def test_titles_say_which_page_it_is():
    found = (re.search("<title>(.*?)</title>", (SITE / path).read_text())[1] for path in PAGES)
    titles = collections.Counter(found)
    assert not [title for title in titles if title == "tfdistr - tfdistr"]
    repeated = {title for title, times in titles.items() if times > 1 and "examples/" not in title}
    assert repeated <= {"tfdistr"}, repeated  # the home page, and 404.html


@pytest.mark.parametrize("name", ["distributed_fit", "local_cluster", "FitResult"])
def test_a_page_of_python_has_its_summary_first_and_its_arguments_at_the_right(browser: Browser, name: str):
    browser.look(1600)
    browser.page(f"python/{name}.html")
    summary, signature = (
        browser.find_element(By.CSS_SELECTOR, selector).location["y"]
        for selector in ("article .doc-object > p", "article .doc-signature")
    )
    assert summary < signature
    parts = browser.find_elements(By.CSS_SELECTOR, ".md-sidebar--secondary .md-nav__link")
    assert len(parts) > 5
    for part in parts:
        target = part.get_attribute("href").partition("#")[2]
        assert browser.find_elements(By.ID, target)


def test_a_name_in_a_guide_leads_to_its_reference(browser: Browser):
    browser.page("start.html")
    links = {
        link.get_attribute("href").rpartition("/site/")[2]
        for link in browser.find_elements(By.CSS_SELECTOR, "article a:has(> code)")
    }
    assert "python/load_dataset.html" in links
