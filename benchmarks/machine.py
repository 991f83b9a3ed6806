"""Where and with what was measured."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sqlite3
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import redis

from benchmarks import celery_side, tables
from benchmarks.loops import LOOP

PACKAGES = ("django", "bullmq", "redis", "hiredis", "uvloop", "psycopg")
COMMITS = 500
BUSY_LOAD = 0.5


def description(client: redis.Redis, *, with_celery: bool) -> str:
    """Two sentences for above the table."""
    valkey = client.info("server")
    server = valkey.get("valkey_version") or valkey["redis_version"]
    packages = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    celery = f" {celery_side.versions()}." if with_celery else ""
    return (
        f"{dt.datetime.now(dt.UTC).date()}, {os.cpu_count()} cores ({_processor()}), "
        f"{platform.system()}, Python {platform.python_version()}: {packages}; loop: {LOOP}. "
        f"Valkey {server}, PostgreSQL {tables.execute('postgres', 'SHOW server_version')} "
        f"(fsync and synchronous_commit on; one commit takes {commit_ms():.2f} ms), "
        f"SQLite {sqlite3.sqlite_version} (WAL).{celery}"
    )


def busy() -> str:
    """What else the machine is doing, empty when that is little."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"the load is {load:.1f} before anything was started" if load > BUSY_LOAD else ""


def commit_ms() -> float:
    """Milliseconds of one commit of one row, one after the other."""
    tables.execute("postgres", "CREATE TABLE IF NOT EXISTS commits (number integer)")
    began = time.perf_counter()
    for number in range(COMMITS):
        tables.execute("postgres", f"INSERT INTO commits VALUES ({number})")
    taken = time.perf_counter() - began
    tables.execute("postgres", "DROP TABLE commits")
    return taken / COMMITS * 1000


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
