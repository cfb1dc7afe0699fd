"""A browser without a window that shows the built site. It reaches no other machine."""

from pathlib import Path

from selenium import webdriver

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


class Browser(webdriver.Chrome):
    """Chromium, with what the tests ask of a page."""

    def look(self, width: int = 1280, height: int = 900) -> None:
        """Show pages in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def page(self, path: str) -> None:
        """Open a page of the site from its folder, as at a first visit."""
        self.get((SITE / path).as_uri())
