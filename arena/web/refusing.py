"""Refusals that people read: what happened and what to do, with the code.

Who asks with a browser gets a page, every other client the one JSON shape; what lies under `/v1/` is for
programs and stays JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from arena.api.refusals import ErrorAnswer
from arena.web.model import ErrorPage
from arena.web.reading import sentence
from arena.web.render import render_page
from foundation.errors import ArenaError
from judge.neutral import neutral_name

SECURITY = {
    "content-security-policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self';"
    " connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


# what people do, where a code's own fix speaks to programs
TO_DO = {
    "V2082": "Everything that is here can be reached from the pages above.",
    "V2089": "It opens by itself; until then its counts alone are public.",
}


def refusal_page(request: Request, code: str, message: str, what_to_do: str, status: int) -> Response:
    """The page of a refusal."""
    shown = ErrorPage(
        status=status, code=code, message=sentence(message), what_to_do=sentence(TO_DO.get(code, what_to_do))
    )
    answer = Response(render_page("error", page=shown, path=request.url.path), status, media_type="text/html")
    answer.headers.update(SECURITY)
    return answer


def answer_people(app: FastAPI) -> None:
    """Show the application's refusals as pages to whoever asks for pages."""
    for kind in (ArenaError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _for_people(app.exception_handlers[kind]))


def _for_people(plain: Any) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        refused: Response = await plain(request, error)
        if request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
            return refused
        said = msgspec.json.decode(bytes(refused.body), type=ErrorAnswer)
        is_no_page = isinstance(error, HTTPException) and error.status_code == 404
        message = f"there is no page {neutral_name(request.url.path)[:64]}" if is_no_page else said.message
        page = refusal_page(request, said.code, message, said.what_to_do, refused.status_code)
        for name in ("retry-after", "allow"):
            if name in refused.headers:
                page.headers[name] = refused.headers[name]
        page.headers["vary"] = "accept"
        return page

    return answer
