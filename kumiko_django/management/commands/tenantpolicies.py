"""``manage.py tenantpolicies``: row-level security for all tenant tables of a database."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, Error, connections, router, transaction

from kumiko_django.exceptions import KumikoError
from kumiko_django.tenancy import policies
from kumiko_django.tenancy.rules import rule_of, table_rules


class Command(BaseCommand):
    """Finds the tables, and makes, shows, compares or removes their policies."""

    help = (
        "Put every table whose rows belong to tenants under row-level security (PostgreSQL). "
        "Done again, it brings the policies up to date."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "models", nargs="*", metavar="app.Model", help="Only the tables of these models."
        )
        parser.add_argument(
            "--database",
            default=DEFAULT_DB_ALIAS,
            help="Alias of the database (default: %(default)s).",
        )
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--check",
            action="store_true",
            help="Change nothing; exit with 1 if a table is not guarded as it should be.",
        )
        what.add_argument("--sql", action="store_true", help="Only print the statements.")
        what.add_argument("--remove", action="store_true", help="Take the policies away again.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        alias = options["database"]
        if alias not in connections.databases:
            raise CommandError(f"{alias!r} is not in DATABASES: {', '.join(connections.databases)}")
        connection = connections[alias]
        if connection.vendor != "postgresql":
            raise CommandError(f"The database {alias!r} is no PostgreSQL: it has no policies.")
        try:
            tables = _tables(options["models"], alias)
            if options["check"]:
                self._check(tables, connection)
                return
            make = policies.disable if options["remove"] else policies.enable
            statements = [sql for table in tables for sql in make(table, connection)]
            if options["sql"]:
                self.stdout.write("".join(f"{sql};\n" for sql in statements), ending="")
                return
            with transaction.atomic(using=alias), connection.cursor() as cursor:
                for sql in statements:
                    cursor.execute(sql)
        except KumikoError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(f"The database {alias!r} refuses: {error}") from error
        word = "without" if options["remove"] else "under"
        self.stdout.write(self.style.SUCCESS(f"{len(tables)} tables are {word} policies."))

    def _check(self, tables: list[str], connection: Any) -> None:
        bad = 0
        for table in tables:
            found = policies.faults(table, connection)
            bad += bool(found)
            for fault in found:
                self.stdout.write(f"{table}: {fault}")
        if bad:
            raise CommandError(f"{bad} of {len(tables)} tables are not guarded as they should be.")
        self.stdout.write(self.style.SUCCESS(f"All {len(tables)} tables are guarded."))


def _tables(labels: list[str], alias: str) -> list[str]:
    """The tables of models, or of all, that belong to tenants and into the database."""
    try:
        chosen = [apps.get_model(label) for label in labels]
    except (LookupError, ValueError) as error:
        raise CommandError(str(error)) from error
    for model in chosen:
        if rule_of(model) is None:
            raise CommandError(f"The rows of {model._meta.label} belong to no tenant.")
    rules = table_rules()
    return sorted(
        {
            model._meta.db_table
            for model in chosen or apps.get_models(include_auto_created=True)
            if model._meta.db_table in rules
            and model._meta.managed
            and not model._meta.proxy
            and router.allow_migrate_model(alias, model)
        }
    )
