"""A headless Chromium, where there is one; with UNSPUR_BROWSER=required its absence is a failure."""

import os
import shutil
from pathlib import Path

import pytest

REQUIRED = os.environ.get("UNSPUR_BROWSER") == "required"
AXE = Path(__file__).parents[2] / "build" / "node_modules" / "axe-core" / "axe.min.js"


def missing(what):
    """Fail or skip, loudly."""
    message = f"THE PAGE WAS NOT TESTED IN A BROWSER: {what}."
    if REQUIRED:
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def browser():
    """One driver for all tests of a module; it can reach nothing but files."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        missing("chromium and chromedriver are not installed (apt-get install chromium chromium-driver)")
    webdriver = (
        pytest.importorskip("selenium.webdriver") if not REQUIRED else __import__("selenium.webdriver").webdriver
    )
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--window-size=1200,900",
        "--force-device-scale-factor=1",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


@pytest.fixture(scope="session")
def axe():
    """The script of axe-core."""
    path = Path(os.environ.get("UNSPUR_AXE", AXE))
    if not path.is_file():
        missing(f"axe-core is not at {path} (npm install --prefix build axe-core, or set UNSPUR_AXE)")
    return path.read_text(encoding="utf-8")
