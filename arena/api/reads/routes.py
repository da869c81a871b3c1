"""All public reads as routes of one application; a parameter that a route does not know is refused."""

from __future__ import annotations

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute

from arena.api.reads.agents import add_agents
from arena.api.reads.board import Board
from arena.api.reads.document import complete_document
from arena.api.reads.network import add_network
from arena.api.reads.races import add_races
from arena.api.reads.results import add_results, add_trajectory
from arena.api.tail import Tail
from foundation.errors import ArenaError


def add_reads(app: FastAPI, board: Board, tail: Tail) -> None:
    """Add the routes of every subject, and their schemas to the document."""
    router = APIRouter(dependencies=[Depends(require_known)])
    add_races(router, board)
    add_agents(router, board)
    add_results(router, board)
    add_trajectory(router, tail)
    add_network(router, board)
    app.include_router(router)
    complete_document(app)


async def require_known(request: Request) -> None:
    """Raises ArenaError V2081 for a query parameter that the route does not know."""
    route = request.scope["route"]
    names = [str(one.alias) for one in route.dependant.query_params] if isinstance(route, APIRoute) else []
    for name in request.query_params:
        if name not in names:
            raise ArenaError("V2081", f"{name[:64]} is not a parameter; there are {', '.join(names) or 'none'}")
