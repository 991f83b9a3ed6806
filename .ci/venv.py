"""Makes or refreshes ``.venv`` at the root of the checkout; ``make`` calls it before every target.

Nothing happens while the stamp in ``.venv`` says that this checkout, with this ``pyproject.toml``,
is installed. An environment that does not run, was copied or moved, has another Python than the one
asked for, or whose installation was interrupted is made anew. Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".stamp"
INSTALLING = VENV / ".installing"


def main() -> int:
    """Bring ``.venv`` up to date and say what is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--same-python",
        action="store_true",
        help="make .venv anew unless it has the Python that runs this",
    )
    same_python = parser.parse_args().same_python
    # Two makes at once: the second waits. The kernel lets go of the lock if the first is killed.
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return refresh(same_python=same_python)


def refresh(*, same_python: bool) -> int:
    """Do as little as is needed."""
    is_usable = looks_usable(same_python=same_python)
    if is_usable and STAMP.exists() and STAMP.read_text() == wanted_stamp():
        return 0
    if is_usable and install():
        return 0
    if VENV.exists():
        say(".venv does not fit or is incomplete")
    if create() and install():
        return 0
    say("Making .venv failed; the messages above say why.")
    return 1


def wanted_stamp() -> str:
    """What the environment is made from: this folder, since scripts hold its path, and the list."""
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    return f"{ROOT}\n{digest}\n"


def looks_usable(*, same_python: bool) -> bool:
    """Whether it is worth installing into the environment that is there."""
    if INSTALLING.exists() or not PYTHON.exists():
        return False
    if STAMP.exists() and STAMP.read_text().split("\n")[0] != str(ROOT):
        return False
    asked = subprocess.run(
        [PYTHON, "-c", "import pip, sys; print(*sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        return False
    version = tuple(int(part) for part in asked.stdout.split())
    return version == sys.version_info[:2] if same_python else version >= (3, 11)


def create() -> bool:
    """Make an empty environment with the Python that runs this."""
    say(f"Making .venv with Python {sys.version.split()[0]}")
    shutil.rmtree(VENV, ignore_errors=True)
    if uv := shutil.which("uv"):
        # With pip in it (--seed), so that it can be refreshed on a day without uv.
        return succeeds([uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(VENV)])
    if succeeds([sys.executable, "-m", "venv", str(VENV)]):
        return True
    say("Debian and Ubuntu keep venv in a package of its own: apt-get install python3-venv")
    return False


def install() -> bool:
    """Install the package, editable, and every dependency group."""
    say("Installing what pyproject.toml names into .venv")
    INSTALLING.touch()
    what = ["--editable", ".", "--group", "dev"]
    if uv := shutil.which("uv"):
        steps = [[uv, "pip", "install", "--quiet", "--python", str(PYTHON), *what]]
    else:
        pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # --group came with pip 25.1.
        steps = [[*pip, "--upgrade", "pip>=25.1"], [*pip, *what]]
    if not all(succeeds(step) for step in steps):
        return False
    STAMP.write_text(wanted_stamp())
    INSTALLING.unlink()
    return True


def succeeds(command: list[str]) -> bool:
    """Run a command in the checkout, its output shown."""
    # VIRTUAL_ENV of the caller's shell is another environment.
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


def say(text: str) -> None:
    """Tell the person who typed ``make``."""
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
