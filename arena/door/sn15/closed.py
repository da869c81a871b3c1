"""What clients of the published SN15 API are told at a door whose policy asks for signed submissions.

Whatever they ask about submissions is answered with 409 in that API's shape, which says that commitment and
signature are missing and names the command that makes both. Nothing that they send is kept, and no body is parsed.
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from starlette.responses import Response

from arena.api.refusals import add_refusals, json_response
from arena.api.sn15.answers import Refused
from arena.door.app import Door
from arena.door.form import discard_body
from arena.door.sn15.refusals import sn15_refusal
from foundation.codes.names import PEER_LACKS

CLOSED_PATHS = ("/v1/miner/",)
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_WHY = (
    "policy `{policy}` wants an agent's commitment on chain and its hotkey's signature over the file, and this API"
    " makes neither: run `arena submit AGENT.py --url {url}` with the same wallet, which makes both."
    " `arena commit AGENT.py` alone is enough where a policy says admission.is_commitment_enough"
)


def make_closed_app(door: Door) -> FastAPI:
    """The application of `CLOSED_PATHS`, over one door."""
    app = FastAPI(title="agent-arena door", docs_url=None, redoc_url=None, openapi_url=None)
    add_refusals(app, sn15_refusal, unknown_route=PEER_LACKS)

    @app.api_route("/v1/miner/{path:path}", methods=_METHODS)
    async def refuse(request: Request, path: str) -> Response:
        door.admit_address(request)
        await discard_body(request)
        url = str(request.base_url).rstrip("/")
        refused = Refused(detail=_WHY.format(policy=door.policy.name, url=url), error_code="SIGNATURE_MISSING")
        return json_response(refused, 409, {"cache-control": "no-store", "connection": "close"})

    return app
