"""What the door does with a submission: refuse it with a reason, or take it in once and answer the same ever after.

Nothing is taken that admission would refuse by what is known now (`arena.submissions.admission`), while the operator's
switch is off, or from who is not registered by a fresh view of the chain; of one hotkey one submission waits at a time,
which the database decides; the same version with the same commitment is answered alike however often and by whichever
process. What was taken is a row that waits before the answer is sent, and the gate has not looked at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from arena.api.http import AgentFileError
from arena.chain.port import Metagraph, Subtensor, Verifier
from arena.door.form import Parser, SubmissionForm
from arena.gate.rules import RULES
from arena.policy import Policy
from arena.records.port import EVERY_STATE, HotkeyState, Store, StoredSubmission
from arena.submissions.admission import admit, past_submissions
from arena.submissions.model import SignedSubmission, is_agent_name, waiting_row
from foundation.canonical import text_hash
from foundation.codes.names import COOLDOWN
from foundation.errors import ArenaError

STREAM = "door"
REASON_CHARS_MAX = 500


class PauseState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether submissions are taken. `reason` is shown to every miner that is turned away."""

    is_paused: bool = False
    reason: str = ""
    since_ms: int = 0  # unix milliseconds


async def read_pause(store: Store) -> PauseState:
    """The state now."""
    events = await store.events(STREAM)
    return _read_state(events[-1] if events else "")


async def put_pause(store: Store, state: PauseState) -> None:
    """Change the state. Raises ArenaError V2022 when somebody else changed it at the same moment."""
    events = await store.events(STREAM)
    await store.put_event(STREAM, len(events), msgspec.json.encode(state).decode())


def require_open(event: str) -> None:
    """Return where submissions are taken after this event, the stream's last. Raises ArenaError V2200 with the
    operator's reason."""
    state = _read_state(event)
    if state.is_paused:
        raise ArenaError("V2200", state.reason)


def _read_state(event: str) -> PauseState:
    return msgspec.json.decode(event, type=PauseState) if event else PauseState()


_STRANGERS_S = 1.0  # how often the chain is asked again for hotkeys that are not known


class Registration:
    """The metagraph of the newest final block, asked for at most every `refresh_s`."""

    def __init__(
        self, chain: Subtensor, monotonic: Callable[[], float], *, refresh_s: float = 6.0, stale_s: float = 180.0
    ) -> None:
        """`monotonic` is a clock in seconds."""
        self._chain, self._monotonic = chain, monotonic
        self._refresh_s, self._stale_s = refresh_s, stale_s
        self._metagraph: Metagraph | None = None
        self._grew_s = self._asked_s = float("-inf")
        self._turn = asyncio.Lock()

    async def metagraph(self) -> Metagraph:
        """The subnet. Raises ArenaError V2201 while it is not known well enough."""
        return await self._known(self._refresh_s)

    async def require(self, hotkey: str) -> None:
        """Return for a registered hotkey; one that is not may just have been. Raises ArenaError A1008, V2201."""
        metagraph = await self.metagraph()
        if metagraph.uid_of(hotkey) is None:
            metagraph = await self._known(min(_STRANGERS_S, self._refresh_s))
        if metagraph.uid_of(hotkey) is None:
            raise ArenaError("A1008", f"{hotkey} on netuid {metagraph.netuid} at block {metagraph.block}")

    async def _known(self, refresh_s: float) -> Metagraph:
        async with self._turn:
            if self._monotonic() - self._asked_s >= refresh_s:
                self._asked_s = self._monotonic()
                try:
                    finalized = await self._chain.finalized_block()
                    if self._metagraph is None or finalized > self._metagraph.block:
                        self._metagraph = await self._chain.metagraph(finalized)
                        self._grew_s = self._monotonic()
                except ArenaError as error:  # the chain is away: what was seen last counts until it is stale
                    if not error.entry.is_retryable:
                        raise
        if self._metagraph is None or self._monotonic() - self._grew_s > self._stale_s:
            raise ArenaError("V2201", f"no new final block within {self._stale_s:g} s")
        return self._metagraph


class CooldownError(ArenaError):
    """A1006: too early; `blocks_left` until a new commitment counts."""

    def __init__(self, detail: str, blocks_left: int) -> None:
        super().__init__("A1006", detail)
        self.blocks_left = blocks_left


class TakenSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a submission that was taken. `next_allowed_block`: before it, a commitment of this hotkey is
    refused; a rejection may bring it forward."""

    agent_version_id: str
    name: str
    hotkey: str
    validator: str
    policy: str
    commitment_block: int
    next_allowed_block: int
    received_ms: int  # unix milliseconds
    status_url: str  # a path; signed requests of the same hotkey read it


class SubmissionService:
    """Takes submissions in for one validator."""

    def __init__(
        self,
        store: Store,
        chain: Subtensor,
        registration: Registration,
        policy: Policy,
        verify: Verifier,
        parser: Parser,
    ) -> None:
        """`parser` says in bounded time whether a file is Python with an entry point."""
        self._store, self._chain, self._registration = store, chain, registration
        self._policy, self._verify, self.parser = policy, verify, parser

    async def take(self, caller: str, form: SubmissionForm, known: HotkeyState) -> TakenSubmission:
        """Take a submission of the hotkey that signed the request, of which this was `known` when it was let in.

        Raises AgentFileError (A1001 to A1004), ArenaError A1006 to A1008, A1010, A1012, V2200, V2201, V2021, U3030.
        """
        require_open(known.event)
        if not is_agent_name(form.agent_name):
            raise ArenaError("A1010", ascii(form.agent_name[:80]))
        submission = await self._read(caller, form)
        agent = submission.agent_version_id
        for row in known.submissions:
            if row.subject.agent_version_id == agent and row.state not in ("withdrawn", "refused"):
                return self._taken(row)
        commitment = await self._chain.commitment(caller)
        metagraph = await self._registration.metagraph()
        # one for this file may become final yet; one for another that is not final may hide the one that is
        if commitment and commitment.sha256 != submission.commitment_sha256 and commitment.block > metagraph.block:
            commitment = await self._chain.commitment(caller, await self._chain.finalized_block())
        admission = admit(
            submission,
            commitment=commitment,
            past=past_submissions(known.submissions, caller),
            metagraph=metagraph,
            rules=self._policy.cooldown,
            verify=self._verify,
            is_commitment_enough=self._policy.admission.is_commitment_enough,
        )
        if admission.refusal is not None and admission.refusal.code == COOLDOWN:
            left = admission.next_allowed_block - await self._chain.finalized_block()
            raise CooldownError(admission.refusal.detail, max(0, left))
        if admission.refusal is not None:
            raise ArenaError(admission.refusal.code, admission.refusal.detail)
        waiting = waiting_row(submission, admission.submitted_block)
        row = await self._store.put_submission(waiting, submission.source, is_alone=True)
        if row.subject.agent_version_id != agent:
            raise ArenaError("A1012", f"{row.name}, version {row.subject.agent_version_id[:16]}")
        return self._taken(row)

    async def withdraw(self, caller: str, agent_version_id: str) -> None:
        """Take back what waits for the gate. It costs no cooldown; the same file may come again.

        Raises ArenaError A1013 for a version that is decided, V2113 for no version of the caller's.
        """
        rows = await self._store.submissions(EVERY_STATE, miner_hotkey=caller)
        row = next((each for each in rows if each.subject.agent_version_id == agent_version_id), None)
        if row is None:
            raise ArenaError("V2113", "no version of this hotkey")
        if row.state != "withdrawn" and not await self._store.set_submission_state(
            agent_version_id, "withdrawn", was="waiting"
        ):
            raise ArenaError("A1013", row.name)

    async def _read(self, caller: str, form: SubmissionForm) -> SignedSubmission:
        limit = self._policy.gate.source_bytes
        if len(form.source) > limit:
            raise AgentFileError("A1004", f"{len(form.source)} bytes of {limit}", 0)
        found = await self.parser.first_finding(form.source)
        if found is not None:
            raise AgentFileError(RULES[found.rule].code, f"{found.rule}: {found.detail}", found.line)
        try:
            source = form.source.decode("utf-8")
        except UnicodeDecodeError as error:
            line = form.source.count(b"\n", 0, error.start) + 1
            raise AgentFileError("A1001", f"byte {error.start}", line) from error
        return SignedSubmission(
            name=form.agent_name,
            source=source,
            hotkey=caller,
            agent_sha256=text_hash(source),
            submitted_ms=form.submitted_ms,
            signature=form.signature,
        )

    def _taken(self, row: StoredSubmission) -> TakenSubmission:
        subject = row.subject
        return TakenSubmission(
            agent_version_id=subject.agent_version_id,
            name=row.name,
            hotkey=subject.miner_hotkey,
            validator=self._store.validator,
            policy=self._policy.name,
            commitment_block=subject.commitment_block,
            next_allowed_block=subject.commitment_block + self._policy.cooldown.accepted_blocks,
            received_ms=row.received_ms,
            status_url=f"/v1/submissions/{subject.agent_version_id}",
        )
