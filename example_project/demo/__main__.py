"""``python -m example_project.demo [--serve]``."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import django

from example_project.demo import checks, report
from example_project.demo.client import AdminBrowser, Client
from example_project.demo.console import Console
from example_project.demo.processes import ROOT, DemoFailed
from example_project.demo.runs import read_runs
from example_project.demo.site import Secrets, Site
from example_project.demo.story import Storyteller
from example_project.demo.watch import watch

TOTAL_SECONDS: Final = 180
INTERRUPTED: Final = 130
SERVE_DIR: Final = Path(os.environ.get("DATA_DIR") or ROOT / ".demo")


def main() -> int:
    """Run the demo, or serve, and say with the exit code whether all went well."""
    parser = argparse.ArgumentParser(prog="python -m example_project.demo", description=__doc__)
    parser.add_argument(
        "--serve", action="store_true", help="keep web server and workers running until Ctrl-C"
    )
    arguments = parser.parse_args()
    console = Console(sys.stdout)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        if arguments.serve:
            serve(console)
        else:
            demo(console)
    except DemoFailed as error:
        console.title("The demo failed")
        console.line(str(error), "bad")
        return 1
    except KeyboardInterrupt:
        console.line()
        console.line("Interrupted; everything that was started has ended.")
        return INTERRUPTED
    return 0


def demo(console: Console) -> None:
    """Start everything, tell the story, look at what came out, and leave nothing behind."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kumiko-demo-") as folder, _time_limit():
        console.title("Starting")
        with Site(Path(folder), keep=False, tell=_indented(console)) as site:
            _set_up_django(site)
            client = Client(site.url, site.secrets.api_keys)
            console.title("Requests")
            told = Storyteller(client, _indented(console)).tell_all()
            console.title("What the workers do")
            watch(told, console, site)
            exit_codes = site.stop_workers()
            runs = read_runs()
            report.show_table(console, runs)
            admin = site.secrets.admin_user, site.secrets.admin_password
            found = [
                *checks.check_runs(told, runs),
                *checks.check_workers(exit_codes),
                *checks.check_data(told),
                *checks.check_isolation(told, client),
                *checks.check_admin(AdminBrowser(site.url, *admin), runs),
            ]
            report.show_log(console, runs)
            report.show_error(console, runs)
            if any(exit_codes.values()):
                console.line(site.last_words())
            report.show_checks(console, found)
    console.title(f"All came out as told, in {time.monotonic() - started:.0f} s")
    console.line("  To look at such runs in the admin, type:  make serve")


def serve(console: Console) -> None:
    """Keep the site up, with something to look at in it, until Ctrl-C."""
    with _only_one(), _time_limit():
        console.title("Starting")
        with Site(SERVE_DIR, keep=True, tell=_indented(console)) as site:
            _set_up_django(site)
            if not read_runs():
                console.title("Requests, so that there is something to look at")
                client = Client(site.url, site.secrets.api_keys)
                Storyteller(client, _indented(console)).tell_all()
            signal.alarm(0)
            _welcome(console, site.url, site.secrets)
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    site.require_alive()
                    time.sleep(0.5)
            console.line("Stopping")


def _welcome(console: Console, url: str, secrets: Secrets) -> None:
    key = secrets.api_keys["acme"]
    console.title(f"Admin: {url}/admin/kumiko/jobrun/")
    console.line(f"  user {secrets.admin_user}, password {secrets.admin_password}", "bold")
    console.line()
    console.line("Upload orders of the tenant acme:")
    console.line(
        f"  curl -H 'Authorization: Bearer {key}' -F file=@example_project/sample-orders.csv \\"
    )
    console.line(f"    {url}/t/acme/orders/imports/")
    console.line()
    console.line(f"Data and logs: {SERVE_DIR} (delete it to begin anew). Ctrl-C stops everything.")


def _set_up_django(site: Site) -> None:
    """From here on this process reads the site's database."""
    os.environ.update(site.environment)
    django.setup()


def _indented(console: Console) -> Callable[[str], None]:
    return lambda text: console.line(f"  {text}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End in the orderly way of Ctrl-C also when the terminal or the shell goes away."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Whatever hangs, the demo does not hang for ever."""

    def too_late(number: int, frame: FrameType | None) -> None:
        raise DemoFailed(f"The demo is not done after {TOTAL_SECONDS} s")

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(TOTAL_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Own the folder of ``make serve``; the lock goes with the process, however it ends."""
    SERVE_DIR.mkdir(parents=True, exist_ok=True)
    (SERVE_DIR / ".gitignore").write_text("*\n")
    with (SERVE_DIR / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DemoFailed(f"'make serve' runs already, with the data in {SERVE_DIR}") from None
        yield


if __name__ == "__main__":
    sys.exit(main())
