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


def test_the_search_finds_a_pasted_message_first(browser):
    browser.get((SITE / "index.html").as_uri())
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
