"""Views that write a personal field, or have a job write one."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from kumiko_django import accepts_personal_data, dispatch
from tests.app.models import Contact

accepting = accepts_personal_data("people register themselves")


def writes(request: HttpRequest) -> HttpResponse:
    Contact.objects.create(nickname=request.path, email="x@example.org")
    return HttpResponse()


async def awrites(request: HttpRequest) -> HttpResponse:
    await Contact.objects.acreate(nickname=request.path, email="x@example.org")
    return HttpResponse()


def dispatches(request: HttpRequest, job: str) -> JsonResponse:
    return JsonResponse({"job": dispatch(f"testapp:job:{job}", tenant_id="acme").job_id})


class Writing(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return writes(request)


class AsyncWriting(View):
    async def get(self, request: HttpRequest) -> HttpResponse:
        return await awrites(request)


def _accepting(view: Any) -> Any:
    return method_decorator(accepting, name="dispatch")(type("Accepting", (view,), {}))


urlpatterns = [
    path("refused/function", writes, name="refused-function"),
    path("refused/async", awrites, name="refused-async"),
    path("refused/class", Writing.as_view(), name="refused-class"),
    path("refused/async-class", AsyncWriting.as_view(), name="refused-async-class"),
    path("accepted/function", accepting(writes)),
    path("accepted/async", accepting(awrites)),
    path("accepted/class", _accepting(Writing).as_view()),
    path("accepted/async-class", _accepting(AsyncWriting).as_view()),
    path("accepted/as-view", accepting(Writing.as_view())),
    path("accepted/async-as-view", accepting(AsyncWriting.as_view())),
    path("dispatches/<str:job>", dispatches),
    path("accepted/dispatches/<str:job>", accepting(dispatches)),
]
