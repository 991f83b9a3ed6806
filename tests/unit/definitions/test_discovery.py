"""``jobs.py`` modules are found when Django starts: real apps in real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.definitions.fresh import Project

pytestmark = pytest.mark.once

ONE_JOB = """
    from kumiko_django import job

    @job
    def send(payload, ctx): ...
"""
SHOW = "print([job.qualified_name for job in registry.all()])"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_the_jobs_of_every_app_are_found_in_order(project: Project) -> None:
    """B015, B115; an app without a ``jobs.py`` is passed over, whatever comes first."""
    project.app("shop", jobs=ONE_JOB)
    project.app("empty")
    project.app("deep.my_billing", jobs=ONE_JOB)

    for installed in (None, [*project.apps, "kumiko_django"]):
        shown = project.setup(SHOW, installed=installed)
        assert shown == "['shop:job:send', 'my-billing:job:send']"


def test_the_label_of_the_config_counts_and_the_innermost_app(project: Project) -> None:
    """B016, B017: which app owns a job."""
    config = """
        from django.apps import AppConfig

        class Config(AppConfig):
            name = "shop"
            label = "web_shop"
    """
    project.app("shop", jobs=ONE_JOB, apps=config)
    project.app("shop.returns", jobs=ONE_JOB)

    assert project.setup(SHOW) == "['web-shop:job:send', 'returns:job:send']"


def test_a_jobs_package_and_jobs_of_other_modules_count_too(project: Project) -> None:
    project.app("shop", reminders=ONE_JOB, jobs="from shop import reminders")
    project.app("billing")
    project.app("billing.jobs", init="from billing.jobs import daily", daily=ONE_JOB)
    project.apps.remove("billing.jobs")

    assert project.setup(SHOW) == "['shop:job:send', 'billing:job:send']"


@pytest.mark.parametrize(
    ("jobs", "error"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import not_installed", "ModuleNotFoundError: No module named 'not_installed'"),
        ("from shop import nothing", "ImportError: cannot import name 'nothing'"),
        ("import shop.nothing", "ModuleNotFoundError: No module named 'shop.nothing'"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("from kumiko_django import Nothing", "ImportError: cannot import name 'Nothing'"),
    ],
)
def test_an_error_inside_is_raised(project: Project, jobs: str, error: str) -> None:
    """A job that silently does not exist is worse than a process that does not start."""
    project.app("shop", jobs=jobs)

    assert project.setup_error().startswith(error)


@pytest.mark.parametrize("module", ["init", "apps"])
def test_a_job_that_is_imported_too_early_says_so(project: Project, module: str) -> None:
    project.app("shop", jobs=ONE_JOB, **{module: "import shop.jobs"})

    error = project.setup_error()

    assert error.startswith("kumiko_django.exceptions.DefinitionError: job shop.jobs.send is")
    assert "before Django has loaded its apps" in error
    assert "do not import it from the app's __init__.py or apps.py" in error


def test_a_job_may_be_imported_by_models(project: Project) -> None:
    """They are loaded when the apps are known."""
    project.app("shop", jobs=ONE_JOB, models="from shop.jobs import send")

    assert project.setup(SHOW) == "['shop:job:send']"


REGISTERS = """
    from django.apps import AppConfig

    class Config(AppConfig):
        name = "shop"

        def ready(self):
            from kumiko_django import JobDefinition, registry
            from shop.work import work
            registry.register(JobDefinition(handler=work, name="by-hand"))
"""


@pytest.mark.parametrize("first", [True, False])
def test_an_app_may_register_when_it_is_ready(project: Project, first: bool) -> None:
    project.app("shop", apps=REGISTERS, work="def work(payload, ctx): ...")
    installed = ["shop", "kumiko_django"] if first else ["kumiko_django", "shop"]

    assert project.setup(SHOW, installed=installed) == "['shop:job:by-hand']"


def test_two_jobs_of_one_name_stop_the_start_with_both_modules(project: Project) -> None:
    project.app("shop", jobs=ONE_JOB + "\n    import shop.more", more=ONE_JOB)

    error = project.setup_error()

    assert "The name 'shop:job:send' of shop.more.send is already taken" in error
    assert "by the job of shop.jobs.send" in error


def test_a_schema_with_an_undefined_name_stops_the_start(project: Project) -> None:
    """P10, P71: and not the first dispatch, or the worker."""
    jobs = """
        from __future__ import annotations

        from pydantic import BaseModel

        from kumiko_django import job

        class Order(BaseModel):
            item: Item

        @job(schema=Order)
        def send(payload, ctx): ...
    """
    project.app("shop", jobs=jobs)

    assert "job shop.jobs.send: schema=Order has an annotation that names" in project.setup_error()

    project.app("shop", jobs=jobs + "\n        class Item(BaseModel):\n            number: int\n")
    assert project.setup(SHOW) == "['shop:job:send']"


@pytest.mark.parametrize(
    "use", ["send.dispatch()", "dispatch(send)", "dispatch('shop:job:send')", "registry.get('x')"]
)
def test_a_dispatch_while_modules_are_imported_is_refused(project: Project, use: str) -> None:
    """It would freeze the registry, and the next app's jobs would be told that they are late."""
    dispatching = f"{ONE_JOB}\n    from kumiko_django import dispatch, registry\n    {use}\n"
    project.app("shop", jobs=dispatching)
    project.app("billing", jobs=ONE_JOB)

    error = project.setup_error()

    assert error.startswith(
        "kumiko_django.exceptions.KumikoError: Jobs are looked up or dispatched"
    )
    assert "do not dispatch while modules are imported, nor in AppConfig.ready()" in error


def test_a_job_that_is_registered_after_the_first_use_is_refused(project: Project) -> None:
    project.app("shop", jobs=ONE_JOB, late=ONE_JOB.replace("send", "late"))

    error = project.setup_error("registry.get('shop:job:send')\nimport shop.late")

    assert "job shop.late.late comes too late" in error


def test_without_the_package_installed_a_dispatch_says_so(project: Project) -> None:
    project.app("shop", jobs=ONE_JOB)

    error = project.setup_error("from shop.jobs import send; send.dispatch()", installed=["shop"])

    assert "Is 'kumiko_django' in INSTALLED_APPS, and has django.setup() run?" in error


def test_the_app_is_configured_for_good(project: Project) -> None:
    """Label and key type are in migrations and permissions: they never follow a host's settings."""
    shown = project.setup(
        "from django.apps import apps\n"
        "config = apps.get_app_config('kumiko')\n"
        "print(config.name, config.label, config.default_auto_field)"
    )

    assert shown == "kumiko_django kumiko django.db.models.BigAutoField"
