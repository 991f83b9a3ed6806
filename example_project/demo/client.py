"""A client of the example's API, and of its admin."""

from __future__ import annotations

import json
import re
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import Any, Final

TIMEOUT_SECONDS: Final = 30


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: Any


class Client:
    """Talks to a site for its tenants, with the key of each."""

    def __init__(self, url: str, api_keys: Mapping[str, str]) -> None:
        self._url = url
        self._api_keys = api_keys

    def get(self, tenant: str, path: str, *, key_of: str | None = None) -> Answer:
        """GET ``/t/<tenant>/<path>``, with the key of that tenant or of another one."""
        return self._send(tenant, path, None, {}, key_of)

    def post(self, tenant: str, path: str, form: Mapping[str, str] | None = None) -> Answer:
        """POST a form."""
        data = urllib.parse.urlencode(form or {}).encode()
        return self._send(tenant, path, data, {})

    def upload(self, tenant: str, path: str, filename: str, content: bytes) -> Answer:
        """POST a file as the form field ``file``."""
        boundary = secrets.token_hex(16)
        head = (
            f"--{boundary}\r\n"
            f'Content-Disposition: form-data; name="file"; filename="{filename}"\r\n'
            "Content-Type: text/csv\r\n\r\n"
        )
        data = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
        content_type = f"multipart/form-data; boundary={boundary}"
        return self._send(tenant, path, data, {"Content-Type": content_type})

    def _send(
        self,
        tenant: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        key_of: str | None = None,
    ) -> Answer:
        request = urllib.request.Request(  # noqa: S310  (the address is that of our own site)
            f"{self._url}/t/{tenant}/{path}",
            data=data,
            headers={"Authorization": f"Bearer {self._api_keys[key_of or tenant]}", **headers},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
                return Answer(response.status, json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _json_or_text(error.read()))


class AdminBrowser:
    """Logs in to the admin as a person does, with a form and a cookie."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.submit("/admin/login/", {"username": user, "password": password, "next": "/admin/"})

    def submit(self, path: str, form: Mapping[str, str]) -> str:
        """Send a page's form and return the page that follows."""
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.page(path))
        fields = {**form, "csrfmiddlewaretoken": found[1] if found else ""}
        return self.page(path, urllib.parse.urlencode(fields).encode())

    def page(self, path: str, data: bytes | None = None) -> str:
        """A page as text."""
        with self._opener.open(f"{self._url}{path}", data, TIMEOUT_SECONDS) as response:
            text: str = response.read().decode()
        return text


def _json_or_text(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")[:500]
