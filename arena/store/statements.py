"""The store's SQL, one named statement each. Writes are single calls of the functions in `migrations/sql`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ARRAY, BigInteger, Boolean, Date, Integer, LargeBinary, Text, TextClause, bindparam, text
from sqlalchemy.types import TypeEngine

_BYTES = ARRAY(LargeBinary)
_TEXTS = ARRAY(Text)
_INTEGERS = ARRAY(Integer)


def _typed(sql: str, **types: TypeEngine[Any]) -> TextClause:
    return text(sql).bindparams(*(bindparam(name, type_=type_) for name, type_ in types.items()))


IDENTITY = text("select arena.session_hotkey()")
HOLD = text("select arena.hold(:validator)")
SESSION = text("select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()")
END_SESSION = text(
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = :pid and backend_start = :backend_start"
)
HEAD = text("select seq, hash from arena.head where validator = :validator")
# Whoever left evidence has a log: one whose head is gone is not to vanish. Hotkeys are found one after the other by
# index, since every record has one.
_LOGS = (
    "with recursive recorded(validator) as (select min(validator) from arena.record union all"
    " select (select min(r.validator) from arena.record r where r.validator > n.validator) from recorded n"
    " where n.validator is not null),"
    " log(validator) as (select validator from arena.head union select validator from arena.checkpoint"
    " union select validator from arena.anchor"
    " union select validator from recorded where validator is not null)"
)
VALIDATORS = text(f"{_LOGS} select validator from log order by validator")

APPEND = _typed(
    "select head_seq, head_hash from arena.append(:validator, :seq, :prev, :contents, :signatures,"
    " :body_sha256s, :body_sizes, :bodies, :fence, :lease_state, :delay_ms, :is_fault, :is_counted)",
    validator=Text(),
    seq=BigInteger(),
    prev=LargeBinary(),
    contents=_BYTES,
    signatures=_BYTES,
    body_sha256s=_BYTES,
    body_sizes=_INTEGERS,
    bodies=_BYTES,
    fence=BigInteger(),
    lease_state=Text(),
    delay_ms=BigInteger(),
    is_fault=Boolean(),
    is_counted=Boolean(),
)

# Pages by key, not a cursor: the log only grows at its end, so pages of different moments fit together.
RECORDS = _typed(
    "select seq, prev, sha256, signature, content from arena.record"
    " where validator = :validator and seq > :after_seq"
    " and (:kinds is null or kind = any (:kinds)) and (:race_id is null or race_id = :race_id)"
    " order by seq limit :page",
    validator=Text(),
    after_seq=BigInteger(),
    kinds=_TEXTS,
    race_id=Text(),
    page=Integer(),
)
# What verification reads goes by the whole key: a row that was doubled on another day is read as often as it stands.
FILED_RECORDS = _typed(
    "select seq, day, prev, sha256, signature, content, kind, race_id, body_sha256,"
    # an append may last over midnight, and a clock may be set back behind it
    " day between ((appended_at - interval '1 hour') at time zone 'UTC')::date"
    " and ((appended_at + interval '1 hour') at time zone 'UTC')::date as is_dated"
    " from arena.record where validator = :validator and (seq, day) > (:after_seq, :after_day)"
    " order by seq, day limit :page",
    validator=Text(),
    after_seq=BigInteger(),
    after_day=Date(),
    page=Integer(),
)
LEAVES = _typed(
    "select seq, day, prev, sha256, signature from arena.record where validator = :validator"
    " and (seq, day) > (:after_seq, :after_day) and (:to_seq is null or seq <= :to_seq) order by seq, day limit :page",
    validator=Text(),
    after_seq=BigInteger(),
    after_day=Date(),
    to_seq=BigInteger(),
    page=Integer(),
)
VERDICTS_ON = _typed(
    "select seq, prev, sha256, signature, content from arena.record where validator = :validator"
    " and kind = 'verdict' and body_sha256 = any (:body_sha256s) order by seq",
    validator=Text(),
    body_sha256s=_BYTES,
)
# A body that was stored again on a later day has a row for each; content is null where its object is to be read.
BODIES = _typed(
    "select sha256, size, content from arena.body"
    " where validator = :validator and sha256 = any (:body_sha256s) order by sha256, content is null, day",
    validator=Text(),
    body_sha256s=_BYTES,
)

SOME_ELSEWHERE = text(
    "select distinct sha256 from arena.body where validator = :validator and content is null"
    " order by sha256 limit :count"
)


PUT_CHECKPOINT = _typed(
    "select arena.put_checkpoint(:validator, :size, :note, :signed_ms)", size=BigInteger(), signed_ms=BigInteger()
)
PUT_ANCHOR = _typed(
    "select arena.put_anchor(:validator, :size, :note_sha256, :block)",
    size=BigInteger(),
    note_sha256=LargeBinary(),
    block=BigInteger(),
)
CHECKPOINTS = _typed(
    "select size, coalesce(c.note, '') as note, coalesce(c.signed_ms, 0) as signed_ms,"
    " coalesce(a.block, 0) as anchor_block, coalesce(encode(a.note_sha256, 'hex'), '') as anchored_sha256"
    " from arena.checkpoint c full join arena.anchor a using (validator, size)"
    " where validator = :validator and size > :after_size order by size",
    validator=Text(),
    after_size=BigInteger(),
)

ENQUEUE = _typed(
    "select arena.enqueue(:validator, :ids, :stages, :races, :agents, :work)",
    validator=Text(),
    ids=_TEXTS,
    stages=_TEXTS,
    races=_TEXTS,
    agents=_TEXTS,
    work=_TEXTS,
)
CLAIM = _typed(
    "select fence, work, expires_ms, faults, counted, refused from arena.claim(:validator, :stages, :count, :ttl_ms)",
    validator=Text(),
    stages=_TEXTS,
    count=Integer(),
    ttl_ms=BigInteger(),
)
RENEW = _typed(
    "select arena.renew(:validator, :fence, :ttl_ms)", validator=Text(), fence=BigInteger(), ttl_ms=BigInteger()
)
EXPIRED = text(
    "select l.fence, i.work, (extract(epoch from l.expires_at) * 1000)::bigint as expires_ms, l.faults, l.counted,"
    " l.refused"
    " from arena.lease l join arena.item i using (validator, item_id) where l.validator = :validator"
    " and (l.state = 'lost' or (l.state = 'open' and l.expires_at <= clock_timestamp())) order by l.fence"
)
CLOSE_ITEMS = text("select arena.close_items(:validator, :race_id, :stage, :agent_version_id)")
OPEN_ITEMS = text(
    "select count(*) from arena.item where validator = :validator and race_id = :race_id and stage = :stage"
    " and state in ('open', 'leased')"
)

_SUBJECT = "agent_version_id, miner_hotkey, agent_sha256, commitment_block, commitment_sha256"
_SUBMISSION_END = "report, failure, qualifying_e4, agreed"
_SUBMISSION = (
    f"{_SUBJECT}, name, submitted_ms, signature, state,"
    f" (extract(epoch from received_at) * 1000)::bigint as received_ms, {_SUBMISSION_END}"
)
PUT_SUBMISSION = _typed(
    f"select {_SUBJECT}, name, submitted_ms, signature, state, received_ms, {_SUBMISSION_END}"
    " from arena.put_submission(:validator, :agent_version_id, :miner_hotkey, :agent_sha256, :commitment_block,"
    " :commitment_sha256, :name, :source, :submitted_ms, :signature, :state, :report, :is_alone)",
    commitment_block=BigInteger(),
    source=LargeBinary(),
    submitted_ms=BigInteger(),
    is_alone=Boolean(),
)
SUBMISSIONS = _typed(
    f"select {_SUBMISSION} from arena.submission where validator = :validator and state = any (:states)"
    " and (:miner_hotkey = '' or miner_hotkey = :miner_hotkey) order by ordinal",
    validator=Text(),
    states=_TEXTS,
    miner_hotkey=Text(),
)
SOURCE = text(
    "select source from arena.submission where validator = :validator and agent_version_id = :agent_version_id"
)
SOURCES = _typed(
    f"select ordinal, validator, {_SUBJECT}, source from arena.submission where ordinal > :after"
    " and state not in ('waiting', 'withdrawn', 'refused') order by ordinal limit :page",
    after=BigInteger(),
    page=Integer(),
)
SET_SUBMISSION_STATE = _typed(
    "select arena.set_submission_state(:validator, :agent_version_id, :was, :state, :report, :failure, :qualifying_e4,"
    " :commitment_block)",
    failure=Text(),
    qualifying_e4=Integer(),
    commitment_block=BigInteger(),
)
PUT_AGREED = text("select arena.put_agreed(:validator, :agent_version_id, :agreed)")

# No row for a nonce that was spent before, and nothing is read for it then.
SPEND_AND_LOOK = _typed(
    "with spent as materialized (select arena.spend_nonce(:validator, :hotkey, :nonce_ns, :keep_ms, :most) as is_new)"
    " select (select event from arena.event where validator = :validator and stream = :stream"
    " order by index desc limit 1) as event,"
    f" (select json_agg(s) from (select {_SUBMISSION} from arena.submission"
    " where validator = :validator and miner_hotkey = :hotkey order by ordinal) s)::text as submissions"
    " from spent where is_new",
    validator=Text(),
    hotkey=Text(),
    nonce_ns=BigInteger(),
    keep_ms=BigInteger(),
    most=Integer(),
    stream=Text(),
)
ITEM_COUNTS = text(
    "select stage, race_id, count(*) filter (where state = 'done') as done, count(*) as total from arena.item"
    " where validator = :validator and agent_version_id = :agent_version_id group by stage, race_id order by race_id"
)

PUT_EVENT = _typed("select arena.put_event(:validator, :stream, :index, :event)", index=Integer())
STREAMS = text(
    "select stream from arena.event where validator = :validator and starts_with(stream, :prefix) and index = 0"
    " order by put_at, stream"
)
EVENTS = text("select event from arena.event where validator = :validator and stream = :stream order by index")

PUT_USAGE = text("select arena.put_usage(:validator, :attempt_id, :race_id, :stage, :agent_version_id, (:rows)::jsonb)")
USAGE_TOTALS = text(
    "select race_id, stage, agent_version_id, upstream, model, count(*)::integer as episodes,"
    " sum(requests)::bigint as requests, sum(attempts)::bigint as attempts, sum(probes)::bigint as probes,"
    " sum(prompt_tokens)::bigint as prompt_tokens, sum(completion_tokens)::bigint as completion_tokens,"
    " sum(latency_ms)::bigint as latency_ms,"
    " case when bool_and(cost_micro_usd is not null) then sum(cost_micro_usd)::bigint end as cost_micro_usd"
    " from arena.usage where validator = :validator group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5"
)

PUT_WEIGHTS_RESULT = _typed(
    "select arena.put_weights_result(:validator, :race_id, :block, :uids, :weights_u16, :status, :detail)",
    block=BigInteger(),
    uids=_INTEGERS,
    weights_u16=_INTEGERS,
)
WEIGHTS_RESULTS = _typed(
    "select race_id, block, uids, weights_u16, status, detail from arena.weights_result"
    " where validator = :validator order by ordinal desc limit :limit",
    limit=Integer(),
)
