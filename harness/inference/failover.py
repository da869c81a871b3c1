"""One request on its way through the upstreams, and whose fault it is when none answers: decided here and nowhere else.

One rule for every kind of failure, whatever status or reply it came as. A request that failed everywhere is
the agent's only when an endpoint answers the *neutral* request of equal shape (`sanitize.py`), and another opinion
agrees: a second endpoint's at once, else that of the attempts which the policy allows, and of other validators. While
no endpoint answers the neutral request nobody is charged. A one-token request proves nothing of the agent's: credit,
size and rate limits refuse long requests. It only tells whether the outage is one that a request's shape can choose.

    answers neutral requests     then
    two endpoints or more        GuestCallError A1043 (A1040 where all say malformed): the agent may go on
    one                          ArenaError U3006; in the last attempt the episode ends, A1043
    none, but one-token ones     ArenaError U3007: the shape is not served; nobody's fault, and no attempt is used up
    none, nor one-token ones     ArenaError U3001..U3004: a real outage

What this node's own bound on requests (`slots.py`) kept from being asked proves nothing either way: an endpoint that
was not asked, or whose neutral request was not, is among those that answer neither, and where no other is left the
failure is U3008 and no outage. Nobody is charged for it; nor does a restart owe less after it: an agent can fill the
slots.

One case is the agent's beyond its own shape: a request longer than what the policy makes every endpoint take
(`served_bytes`), which the endpoint calls malformed (400, 413, 422) while it answers a neutral one of that size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from foundation.backoff import Backoff
from foundation.codes.names import (
    BAD_REQUEST,
    MODEL_FAILED,
    MODEL_REFUSED,
    NO_ENDPOINT,
    NO_TURN,
    REQUEST_PROVOKED,
    SHAPE_NOT_SERVED,
)
from foundation.codes.row import Owner
from foundation.errors import ArenaError, Failure
from harness.inference.port import EndingRefusalError, InferenceRules, ModelReply, RetryLaterError, Upstream
from harness.inference.request import RebuiltRequest
from harness.inference.sanitize import neutral_request, plain_request
from harness.sandbox.port import GuestCallError

_AT_ONCE = frozenset({NO_ENDPOINT, BAD_REQUEST})  # what another attempt within one call does not heal
_BACKOFF_MAX_MS = 600_000
_ROUNDS = 2  # the second one is for a request that failed in an outage that has just ended


class Failover:
    """The way of one request through the upstreams of its model. `is_last`: no later attempt at this episode can give a
    second opinion."""

    def __init__(
        self,
        request: RebuiltRequest,
        upstreams_of: Callable[[str], tuple[Upstream, ...]],
        rules: InferenceRules,
        sleep: Callable[[float], None],
        *,
        is_last: bool,
    ) -> None:
        self.attempts = self.probes = 0
        self.answered_by = ""
        self._request = request
        self._upstreams = upstreams_of(request.model)
        self._upstreams_of = upstreams_of
        self._rules = rules
        self._sleep = sleep
        self._is_last = is_last
        self._probed: dict[tuple[int, str], Failure | None] = {}

    def run(self, models: Iterable[str] = ()) -> ModelReply:
        """The first answer. `models` are those that answered this agent before, in this attempt or one it repeats: an
        outage of another model is one that the agent can choose.

        Raises GuestCallError or ArenaError as the table above says, and the ArenaError of a fault of ours as it is.
        """
        failures: dict[int, Failure] = {}
        candidates = tuple(range(len(self._upstreams)))
        for _ in range(_ROUNDS):
            for place in candidates:
                answer = self._try(self._upstreams[place])
                if isinstance(answer, ModelReply):
                    self.answered_by = self._upstreams[place].name
                    return answer
                failures[place] = answer
            candidates = tuple(
                place
                for place in candidates
                if failures[place].code != NO_TURN and self._answers_neutral(place, failures[place])
            )
            if not candidates:
                raise self._outage(tuple(failures.values()), models)
        detail, codes = failures[candidates[0]].detail, {failures[place].code for place in candidates}
        if len(candidates) > 1:
            code = BAD_REQUEST if codes == {BAD_REQUEST} else MODEL_REFUSED
            raise GuestCallError(code, f"the model endpoint refused the request: {detail}")
        if self._is_last:
            raise EndingRefusalError(MODEL_REFUSED, "refused at every attempt that the policy allows", "model_refused")
        raise ArenaError(REQUEST_PROVOKED, detail)

    def _try(self, upstream: Upstream) -> ModelReply | Failure:
        """All attempts on one upstream, with pauses that double, or what the endpoint asked for when that is longer (up
        to the policy's cap), and up to a half more. Raises ArenaError for a fault that is no upstream's."""
        rules = self._rules
        backoff = Backoff(first_ms=rules.backoff_ms, most_ms=max(rules.backoff_ms, _BACKOFF_MAX_MS))
        spread = 1 + int(self._request.sha256[:4], 16) / 0x2_0000  # workers that fail together part ways
        last, asked_pause_ms = Failure(code=MODEL_FAILED), 0
        for attempt in range(rules.attempts):
            if attempt:
                pause_ms = max(backoff.pause_ms(attempt), min(asked_pause_ms, rules.retry_after_max_ms))
                self._sleep(pause_ms / 1000 * spread)
            self.attempts += 1
            try:
                return upstream.complete(self._request.text)
            except ArenaError as error:
                if error.owner is not Owner.UPSTREAM and error.failure.code != BAD_REQUEST:
                    raise
                last = Failure(code=error.failure.code, detail=f"{upstream.name}: {error.failure.detail}")
                asked_pause_ms = error.retry_after_ms if isinstance(error, RetryLaterError) else 0
                if last.code in _AT_ONCE:
                    break
        return last

    def _answers_neutral(self, place: int, failure: Failure) -> bool:
        upstream = self._upstreams[place]
        refused = self._probe(upstream, neutral_request(self._request.text))
        if refused is None:
            return True
        served = self._rules.served_bytes
        is_too_long = served and len(self._request.text.encode()) > served
        if not is_too_long or {failure.code, refused.code} != {BAD_REQUEST}:
            return False
        return self._probe(upstream, neutral_request(self._request.text, at_most_bytes=served)) is None

    def _probe(self, upstream: Upstream, request: str) -> Failure | None:
        """Each request once to each upstream."""
        if (id(upstream), request) not in self._probed:
            self.probes += 1
            self._probed[id(upstream), request] = upstream.probe(request)
        return self._probed[id(upstream), request]

    def _outage(self, failures: tuple[Failure, ...], models: Iterable[str]) -> ArenaError:
        """The code of a real outage is the common one when all upstreams failed alike, else U3002; U3008 where one was
        not asked. The detail names every upstream."""
        detail = "; ".join(failure.detail for failure in failures)
        unasked = [failure for failure in (*failures, *self._probed.values()) if failure and failure.code == NO_TURN]
        if unasked:
            return ArenaError(NO_TURN, f"{detail}; {unasked[0].detail}" if unasked[0] not in failures else detail)
        for model in dict.fromkeys((self._request.model, *models)):
            if any(self._probe(upstream, plain_request(model)) is None for upstream in self._upstreams_of(model)):
                return ArenaError(SHAPE_NOT_SERVED, detail)
        codes = {MODEL_FAILED if failure.code == BAD_REQUEST else failure.code for failure in failures}
        return ArenaError(codes.pop() if len(codes) == 1 else MODEL_FAILED, detail)
