"""What a test does in the browser, in the words of who sits in front of it."""

from __future__ import annotations

from typing import Any, Literal

from django.urls import reverse
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.ui import WebDriverWait

WIDE = (1400, 1000)
PHONE = (390, 844)
Theme = Literal["light", "dark", "auto"]


class Admin:
    """The admin of the server at ``base_url``."""

    def __init__(self, driver: webdriver.Chrome, base_url: str) -> None:
        self.driver = driver
        self.base_url = base_url

    def reset(self) -> None:
        """Forget the session of the test before, and what its console said."""
        self.driver.get(f"{self.base_url}{reverse('admin:login')}")
        self.driver.delete_all_cookies()
        self.driver.execute_script("localStorage.clear(); sessionStorage.clear();")
        self.resize(WIDE)
        self.prefer("light")
        self._console()

    def log_in(self, username: str, password: str) -> None:
        """Through the form."""
        self.driver.get(f"{self.base_url}{reverse('admin:login')}")
        self.find("#id_username").send_keys(username)
        self.find("#id_password").send_keys(password)
        self.find("#login-form [type=submit]").click()
        self.wait_for("#user-tools")

    def open_list(self) -> None:
        """From the index, as a person gets there."""
        self.driver.get(f"{self.base_url}{reverse('admin:index')}")
        self.find("#content-main .model-jobrun th a").click()
        self.wait_for("#changelist")

    def click(self, selector: str, then: str) -> None:
        """Click, and wait until the next page has what ``then`` selects."""
        old = self.find("html")
        self.find(selector).click()
        WebDriverWait(self.driver, 30).until(expected.staleness_of(old))
        self.wait_for(then)

    def wait_for(self, selector: str) -> WebElement:
        """Wait until it is there."""
        return WebDriverWait(self.driver, 30).until(
            expected.presence_of_element_located((By.CSS_SELECTOR, selector))
        )

    def find(self, selector: str) -> WebElement:
        """The first element that matches."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The visible texts of all that match."""
        return [element.text for element in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def resize(self, size: tuple[int, int]) -> None:
        """Give the page that much room, whatever the window's frame takes."""
        width, height = size
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def prefer(self, scheme: Literal["light", "dark"]) -> None:
        """Set what the operating system asks pages to look like."""
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )

    def console_errors(self) -> list[str]:
        """What the console has said since the last call, information left out."""
        return [
            f"{entry['level']}: {entry['message']}"
            for entry in self._console()
            if entry["level"] in ("SEVERE", "WARNING")
        ]

    def _console(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return entries
