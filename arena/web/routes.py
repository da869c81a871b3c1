"""Addresses of the pages, headers; refusals that people read, with the code and what to do.

Who asks with a browser gets a page, every other client the one JSON shape; what lies under `/v1/` is for
programs and stays JSON.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.responses import Response

from arena.api.board import Board
from arena.api.http import ErrorAnswer, deliver, refusal, refused, require_known, status_of
from arena.api.reads import Number, ValidatorName
from arena.api.tail import Tail
from arena.bank.batch import Explain
from arena.records.proof import encode_proof
from arena.web.pages import Pages
from arena.web.reading import moment, sentence
from foundation.errors import ArenaError
from judge.neutral import neutral_name

STATIC = {
    "site.css": "text/css; charset=utf-8",
    "site.js": "text/javascript; charset=utf-8",
    "verify_proof.py": "text/x-python; charset=utf-8",
}


@functools.cache
def _templates() -> Environment:
    """The templates of the pages, and the parts that they share with static traces (`arena.view`)."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader("arena.web"), PackageLoader("arena.view", "")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["moment"] = moment
    made.filters["pair"] = lambda text: (text, text)
    made.filters["sentence"] = sentence
    made.filters["name"] = lambda text: neutral_name(text).strip()
    made.filters["percent_between"] = lambda value, low, high: f"{100 * (value - low) / max(1, high - low):.2f}"
    made.filters["share"] = lambda value_e4: f"{value_e4 / 10_000:.4f}"
    made.filters["percent"] = lambda value_e4: f"{value_e4 / 100:.1f}\u00a0%"
    made.filters["short"] = lambda text: f"{text[:6]}…{text[-4:]}" if len(text) > 14 else text
    made.filters["usd"] = lambda micro: f"${micro / 1e6:.4f}"
    return made


def render_page(name: str, **values: object) -> bytes:
    """The page of a template with these values."""
    return _templates().get_template(f"{name}.html.j2").render(**values).lstrip().encode("utf-8", "replace")


@functools.cache
def static_file(name: str) -> bytes:
    """A file of `STATIC`: the stylesheet is also that of static traces; the program is what checks proofs elsewhere."""
    if name == "site.css":
        return (files("arena.view") / "looks.css").read_bytes() + (files("arena.web") / "static" / name).read_bytes()
    if name == "verify_proof.py":
        return (files("arena.records") / name).read_bytes()
    return (files("arena.web") / "static" / name).read_bytes()


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


def refusal_page(request: Request, said: ErrorAnswer, status: int) -> Response:
    """The page of a refusal."""
    to_do = sentence(TO_DO.get(said.code, said.what_to_do))
    shown = dict(status=status, code=said.code, message=sentence(said.message), what_to_do=to_do)
    answer = Response(render_page("error", page=shown, path=request.url.path), status, media_type="text/html")
    answer.headers.update(SECURITY)
    return answer


def answer_people(app: FastAPI) -> None:
    """Show the application's refusals as pages to whoever asks for pages."""
    for kind in (ArenaError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _for_people(app.exception_handlers[kind]))


def _for_people(plain: Any) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        plainly: Response = await plain(request, error)
        if request.url.path.startswith("/v1/") or "text/html" not in request.headers.get("accept", ""):
            return plainly
        said = msgspec.json.decode(bytes(plainly.body), type=ErrorAnswer)
        is_no_page = isinstance(error, HTTPException) and error.status_code == 404
        if is_no_page:
            said = msgspec.structs.replace(said, message=f"there is no page {neutral_name(request.url.path)[:64]}")
        page = refusal_page(request, said, plainly.status_code)
        for name in ("retry-after", "allow"):
            if name in plainly.headers:
                page.headers[name] = plainly.headers[name]
        page.headers["vary"] = "accept"
        return page

    return answer


_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")


def add_pages(app: FastAPI, board: Board, tail: Tail, explain: Explain) -> None:
    """Add the pages to the application of the reads. `explain` says what released problems asked."""
    pages = Pages(board, tail, explain)

    async def api() -> object:
        return app.openapi()

    router = APIRouter(dependencies=[Depends(require_known)], include_in_schema=False)
    for path, name, make in (
        ("/", "front", pages.front),
        ("/races", "races", pages.races),
        ("/races/{race_id}", "race", pages.race),
        ("/races/{race_id}/problems/{problem_id}", "problem", pages.problem),
        ("/traces/{validator}/{seq}", "trace_page", pages.trace),
        ("/agents", "agents", pages.agents),
        ("/agents/{agent_version_id}", "agent", pages.agent),
        ("/firehose", "firehose", pages.firehose),
        ("/validators", "validators", pages.validators),
        ("/verify", "verify", pages.verify),
        ("/api", "api", api),
    ):
        _add_page(router, pages, path, name, make)
    _add_files(router, pages)
    app.include_router(router)
    answer_people(app)


def _base_url(request: Request) -> str:
    """This server's address as the client named it. People copy it into commands, so no shell may read more."""
    is_plain = _HOST.fullmatch(request.base_url.netloc)
    named = request if is_plain else Request({**request.scope, "headers": []})
    return str(named.base_url)


def _add_page(router: APIRouter, pages: Pages, path: str, name: str, make: Callable[..., Awaitable[object]]) -> None:
    """Show at `path` the template `name` of what `make` gives for the parameters of a request."""

    async def show(request: Request, **asked: object) -> Response:
        try:
            await pages.board.refresh()
            page = await make(**asked)
            template = "compare" if isinstance(page, list) else name  # two traces side by side
            shown = dict(page=page, path=request.url.path, base_url=_base_url(request), called=pages.called)
            content = render_page(template, **shown)
        except ArenaError as error:
            return refusal_page(request, refused(error, status_of(error)), status_of(error))
        answer = deliver(request, content, "text/html")
        answer.headers.update(SECURITY)
        return answer

    parameters = inspect.signature(make, eval_str=True).parameters
    own = inspect.Parameter("request", inspect.Parameter.POSITIONAL_ONLY, annotation=Request)
    vars(show)["__signature__"] = inspect.Signature([own, *parameters.values()])
    router.get(path, name=path)(show)


def _add_files(router: APIRouter, pages: Pages) -> None:
    @router.get("/proofs/{validator}/{seq}")
    async def show_proof(request: Request, validator: ValidatorName, seq: Number) -> Response:
        """The proof file of a record (`arena.records.proof`), for the page `/verify` and the program there."""
        await pages.board.refresh()
        content = encode_proof(await pages.proof(validator, seq))
        return deliver(request, content, "application/json", name=f"proof-{seq}.json")

    @router.get("/static/{name}")
    async def show_static(request: Request, name: str) -> Response:
        if name not in STATIC:
            return refusal(ArenaError("V2082", f"there is no file {name[:64]!a}"))
        answer = deliver(request, static_file(name), STATIC[name])
        answer.headers["cache-control"] = "max-age=300"
        return answer
