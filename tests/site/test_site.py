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


#: What users paste from a terminal, of Python and of R, and the first line of the message's heading.
PASTED = {
    "tfdistr.errors.ArgumentError: `workers` must be a whole number of at least 1.Received: 0Fix: Pass "
    "workers=1, for example.": "`…` must be a whole number of at least 1.",
    "Error in `local_cluster()`:! `workers` must be a whole number of at least 1.": (
        "`…` must be a whole number of at least 1."
    ),
    "`split` must be one of 'all', 'train', 'test'.": "`…` must be one of ….",
    "tfdistr.errors.ClusterStartError: Each host must have a free port for each worker.": (
        "Each host must have a free port for each worker."
    ),
    "Only one job at a time may write to a run directory.Received: /tmp/run, which another job uses": (
        "Only one job at a time may write to a run directory."
    ),
    '! communication = "nccl" needs a GPU for each worker.': (
        'communication="nccl" needs a GPU for each worker.'
    ),
    "`run_dir` with s3:// needs the package s3fs.": "`run_dir` with …:// needs the package ….",
    "Cannot resume: the job differs from the saved run. Only `epochs` may be larger.Received: seed=2": (
        "Cannot resume: the job differs from the saved run. Only `epochs` may be larger."
    ),
    "Error in `distributed_fit()`:! Cannot resume: the model differs from the saved run.": (
        "Cannot resume: the model differs from the saved run."
    ),
    "JobMismatchError: All workers must run the same job.": "All workers must run the same job.",
    "JobMismatchError: The workers start with different weights.": (
        "The workers start with different weights."
    ),
    "The job did not leave the Slurm queue within 60 s.": "The job did not leave the Slurm queue within … s.",
    "slurm_cluster() needs the Slurm programs.": "slurm_cluster() needs the Slurm programs.",
    "ray_cluster() needs the Python package ray.": "ray_cluster() needs the Python package ray.",
    "Not all workers started MPI within 300 s, which is `start_timeout`.": (
        "Not all workers started MPI within … s, which is `start_timeout`."
    ),
    "The data set 'digits' has no argument `foo`.": "The data set … has no argument `…`.",
    "The job was preempted (SIGTERM) and saved a checkpoint at epoch 3, step 120.": (
        "The job was preempted (SIGTERM) and saved a checkpoint at …."
    ),
    "A cluster with a variable number of workers needs `virtual_workers`.Received: from 2 to 4 workers": (
        "A cluster with a variable number of workers needs `virtual_workers`."
    ),
    "TF_CONFIG must hold a JSON object.": "TF_CONFIG must hold a JSON object.",
    "Give `validation_data` or `validation_split`, not both.": (
        "Give `validation_data` or `validation_split`, not both."
    ),
}


def test_the_search_finds_a_pasted_message_first(browser: Browser):
    browser.look()
    browser.page("index.html")
    field = browser.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]")
    first = browser.find_element(By.CSS_SELECTOR, ".md-search-result > :first-child")
    found = {}
    for text in PASTED:
        browser.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", field, text
        )
        found[text] = first.get_property("hidden") or first.get_property("textContent")
    assert found == PASTED
    browser.execute_script(
        "arguments[0].value = 'learning rate'; arguments[0].dispatchEvent(new Event('input'))", field
    )
    assert first.get_property("hidden")
    address = first.get_property("href")
    browser.get(address)
    heading = browser.find_element(By.ID, address.partition("#")[2])
    assert heading.get_property("textContent").startswith(
        "Give validation_data or validation_split, not both."
    )
