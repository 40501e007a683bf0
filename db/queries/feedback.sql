-- insert_batch: add acts of feedback; an id or an idempotency key that is known adds nothing.
INSERT INTO obs.feedback (id, tenant, request_id, kind, value, text, actor, idempotency_key, at)
SELECT id, tenant, request_id, kind, value, text, actor, idempotency_key, at
FROM jsonb_to_recordset(%(records)s) AS x (
    id uuid, tenant text, request_id uuid, kind text, value smallint, text text, actor text,
    idempotency_key text, at timestamptz)
ORDER BY id
ON CONFLICT DO NOTHING;

-- current: what holds now for a request.
SELECT id::text AS id, tenant, request_id::text AS request_id, kind, value, text, actor, idempotency_key, at
FROM obs.feedback_current
WHERE request_id = %(request_id)s
ORDER BY kind;

-- history: every act on a request, oldest first.
SELECT id::text AS id, tenant, request_id::text AS request_id, kind, value, text, actor, idempotency_key, at
FROM obs.feedback
WHERE request_id = %(request_id)s
ORDER BY at, id;

-- orphans: acts whose request row is overdue.
SELECT id::text AS id, tenant, request_id::text AS request_id, kind, value, text, actor, idempotency_key, at
FROM obs.orphan_feedback(%(grace)s);
