"""CSV files of orders as customers send them: long, with umlauts, and not without mistakes."""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
from dataclasses import dataclass
from typing import Final

COLUMNS: Final = (
    "number", "customer", "email", "article", "quantity", "unit_price", "ordered_on",
)  # fmt: skip
CUSTOMERS: Final = (
    "Bäckerei Jürgen Groß", "Müller, Schulz & Partner", "Weingut Schäfer", "Friseur Süß",
    "Straßenbau Köhler", "Ångström Elektronik", "Gärtnerei Łukasz", 'Gasthof "Zum Löwen"',
    "Fahrräder Özdemir", "Zoë Niño, Übersetzungen", "Möbelhaus Jäger", "Café Crème",
)  # fmt: skip
ARTICLES: Final = (
    "Schrauben, verzinkt", "Türgriff aus Messing", 'Rohr 3/4", 2 m', "Dübel, 100 Stück",
    "Pinsel, fein", "Lack, weiß, 5 l", "Kabel, 1,5 mm²", "Bürste",
)  # fmt: skip
MISTAKES: Final = (
    {"quantity": "zwei"},
    {"unit_price": "-3.50"},
    {"ordered_on": "31.02.2026"},
    {"email": "not an address"},
    {"customer": ""},
    {"unit_price": "1,99"},
)


@dataclass(frozen=True)
class OrderFile:
    """A file, and what an import has to make of it."""

    name: str
    content: bytes
    good: int
    broken: int
    customers: int


def make_order_file(name: str, *, rows: int, broken: int) -> OrderFile:
    """A file of ``rows`` rows; ``broken`` of them, spread evenly, make no order.

    The order numbers are the same in each file: what keeps two tenants' orders apart is the tenant.
    """
    rng = random.Random(name)
    every = rows // broken
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    seen: set[str] = set()
    for index in range(rows):
        row = _row(index, rng)
        is_broken = index % every == every // 2 and index // every < broken
        if is_broken:
            row.update(MISTAKES[index // every % len(MISTAKES)])
        else:
            seen.add(row["email"])
        writer.writerow(row)
    return OrderFile(name, text.getvalue().encode("utf-8"), rows - broken, broken, len(seen))


def _row(index: int, rng: random.Random) -> dict[str, str]:
    branch = rng.randrange(5)
    which = rng.randrange(len(CUSTOMERS))
    ordered_on = dt.date(2026, 1, 1) + dt.timedelta(days=index % 365)
    return {
        "number": f"2026-{index + 1:06}",
        "customer": f"{CUSTOMERS[which]} (Filiale {branch + 1})",
        "email": f"einkauf-{which}-{branch}@example.com",
        "article": rng.choice(ARTICLES),
        "quantity": str(rng.randint(1, 40)),
        "unit_price": f"{rng.randint(50, 20_000) / 100:.2f}",
        "ordered_on": ordered_on.isoformat(),
    }
