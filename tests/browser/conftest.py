"""A real Chromium against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from pytest_django.live_server_helper import LiveServer
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.browser.chromium import INSTALL_SECONDS, locate
from tests.browser.pages import Admin

HERE = Path(__file__).parent
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder; the first test may have to wait for the installation."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(2 * INSTALL_SECONDS))


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Give a browser with an empty profile; it is one for all tests, since it starts slowly."""
    chromium = locate()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium.browser
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With the path given, selenium has nothing to look for on the network.
    browser = webdriver.Chrome(options=options, service=Service(executable_path=chromium.driver))
    browser.set_page_load_timeout(60)
    try:
        yield browser
    finally:
        browser.quit()


@pytest.fixture(scope="session")
def live_server() -> Iterator[LiveServer]:
    """Give pytest-django's server, with the static files of the apps and a strict policy (CSP)."""
    with pytest.MonkeyPatch.context() as patch:
        # The server looks at it once, when it starts.
        policy = "tests.browser.policy.ContentSecurityPolicyMiddleware"
        patch.setattr(django_settings, "MIDDLEWARE", [policy, *django_settings.MIDDLEWARE])
        server = LiveServer("localhost")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def admin_page(
    driver: webdriver.Chrome, live_server: LiveServer, transactional_db: None
) -> Iterator[Admin]:
    """Give the admin in the browser, logged out, in light colours and on a wide screen.

    The test fails if anything in the browser's console is a warning or an error.
    """
    admin = Admin(driver, live_server.url)
    admin.reset()
    yield admin
    errors = admin.console_errors()
    assert not errors, "\n".join(errors)
