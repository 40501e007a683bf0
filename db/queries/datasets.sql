-- wait_for_writers: those under way end, those who wait behind us will record a later time.
SELECT pg_advisory_xact_lock(obs.writers_lock());

-- lock_timeout: give up rather than hold every writer back behind a long transaction.
SET LOCAL lock_timeout = '10s';

-- analyse: give the planner the size of what came lately, which it may not know yet.
ANALYZE obs.request, obs.content, obs.feedback, obs.consent;

-- moment: the time that a freeze without one of its own gets.
SELECT clock_timestamp() AS now;

-- kto: every example a log offers, and the filter that each one fell at (null: kept).
WITH log AS MATERIALIZED (
    -- What was recorded by as_of, of one endpoint.
    SELECT l.id, l.user_key, l.parent_id, l.api, l.messages, l.prompt_hash, l.completion, l.fb_explicit,
           l.fb_regen, l.fb_edited, l.finish_reason, e.is_traffic, e.is_finished, e.has_content, e.is_clean,
           e.has_consent,
           -- The prompt had more than roles and texts in it, or began the answer; an example has neither.
           l.sampling ?| ARRAY['tools', 'documents', 'continue_final_message']
               OR l.messages @? '$[*] ? (@.role == "tool" || exists (@.tool_calls))' AS with_more
    FROM obs.inference_log_at(%(as_of)s) l
    JOIN obs.eligibility_at(%(as_of)s) e ON e.id = l.id
    WHERE l.tenant = %(tenant)s AND l.endpoint = %(endpoint)s
      AND (%(since)s::timestamptz IS NULL OR l.created_at >= %(since)s)
), usable AS MATERIALIZED (
    SELECT * FROM log
    WHERE is_traffic AND is_finished AND has_content AND is_clean AND has_consent AND api IN ('chat', 'responses')
      AND NOT with_more
), offered AS (
    -- A thumb is a label. A cut answer may be disliked, but would teach to stop in mid-sentence if liked.
    SELECT id, user_key, prompt_hash, messages, 'thumbs' AS origin, completion, finish_reason,
           fb_explicit = 1 AS label
    FROM usable
    WHERE fb_explicit IS NOT NULL AND (fb_explicit = -1 OR finish_reason = 'stop')
    UNION ALL
    -- An edit: its text is what the user wanted, and whole; the answer that it corrects is what he did not.
    SELECT u.id, u.user_key, u.prompt_hash, u.messages, e.origin, e.completion, e.finish_reason, e.label
    FROM usable u
    CROSS JOIN LATERAL (VALUES ('edit', u.fb_edited, 'stop', true),
                               ('corrected', u.completion, u.finish_reason, false))
        AS e (origin, completion, finish_reason, label)
    WHERE u.fb_edited IS NOT NULL AND u.fb_edited <> u.completion
    UNION ALL
    -- Asked again and left unrated: the answer was not accepted. One that was cut off says nothing.
    SELECT id, user_key, prompt_hash, messages, 'regenerated', completion, finish_reason, false
    FROM usable
    WHERE fb_regen AND fb_explicit IS NULL AND fb_edited IS NULL AND finish_reason = 'stop'
    UNION ALL
    -- The end of a chain of regenerations, unrated: desirable when the talk went on from this answer.
    SELECT u.id, u.user_key, u.prompt_hash, u.messages, 'accepted', u.completion, u.finish_reason, true
    FROM usable u
    WHERE u.parent_id IS NOT NULL AND NOT u.fb_regen AND u.fb_explicit IS NULL AND u.fb_edited IS NULL
      AND u.finish_reason = 'stop'
      AND EXISTS (SELECT FROM log n
                  WHERE n.user_key = u.user_key AND n.id > u.id
                    AND n.messages -> jsonb_array_length(u.messages) ->> 'role' = 'assistant'
                    AND n.messages -> jsonb_array_length(u.messages) ->> 'content' = u.completion)
), fitting AS (
    SELECT o.*, sha256(convert_to(o.completion, 'UTF8')) AS completion_hash,
           char_length(o.completion) BETWEEN %(min_chars)s AND %(max_chars)s AS fits,
           o.prompt_hash = ANY (%(held_out)s::text[]) AS is_held_out
    FROM offered o
), voted AS (
    -- Users vote on each (prompt, completion): the majority's label stands, a tie drops both.
    SELECT prompt_hash, completion_hash,
           count(DISTINCT user_key) FILTER (WHERE label) AS up,
           count(DISTINCT user_key) FILTER (WHERE NOT label) AS down
    FROM fitting
    WHERE fits AND NOT is_held_out
    GROUP BY prompt_hash, completion_hash
), settled AS (
    SELECT f.*, f.label = (v.up > v.down) AND v.up <> v.down AS is_agreed,
           jsonb_build_object(
               'prompt', f.messages,
               'completion', jsonb_build_array(
                   jsonb_build_object('role', 'assistant', 'content', f.completion)),
               'finish_reason', f.finish_reason,
               'label', f.label) AS payload
    FROM fitting f
    LEFT JOIN voted v USING (prompt_hash, completion_hash)
), first_seen AS (
    SELECT s.*, row_number() OVER (PARTITION BY fits, is_held_out, is_agreed, prompt_hash, completion_hash
                                   ORDER BY id, origin) AS copy
    FROM settled s
), judged AS (
    SELECT f.*, CASE
               WHEN NOT fits THEN 'length'
               WHEN is_held_out THEN 'held_out'
               WHEN NOT is_agreed THEN 'conflict'
               WHEN copy > 1 THEN 'duplicate' END AS fell
    FROM first_seen f
), hashed AS MATERIALIZED (
    SELECT j.*, CASE WHEN fell IS NULL THEN encode(obs.json_hash(payload), 'hex') END AS payload_hash
    FROM judged j
), drawn AS (
    SELECT h.*, sha256(convert_to(%(seed)s::bigint || ':' || payload_hash, 'UTF8')) AS draw FROM hashed h
), capped AS (
    SELECT d.*, coalesce(fell, CASE WHEN row_number() OVER (PARTITION BY fell, user_key ORDER BY draw)
                                         > %(per_user_cap)s THEN 'user_cap' END) AS fell_at
    FROM drawn d
), placed AS (
    -- Shuffled by the seed; then each label is spread evenly, so that every batch sees both.
    SELECT c.*, (row_number() OVER (PARTITION BY fell_at, label ORDER BY draw) - 0.5)
                / count(*) OVER (PARTITION BY fell_at, label) AS place
    FROM capped c
)
SELECT p.id::text AS request_id, p.origin, p.label, p.payload_hash, p.fell_at,
       CASE WHEN p.fell_at IS NULL THEN p.payload::text END AS payload, t.*
FROM (SELECT count(*) AS requests,
             count(*) FILTER (WHERE is_traffic) AS traffic,
             count(*) FILTER (WHERE is_traffic AND is_finished) AS finished,
             count(*) FILTER (WHERE is_traffic AND is_finished AND has_content) AS content,
             count(*) FILTER (WHERE is_traffic AND is_finished AND has_content AND is_clean) AS clean,
             count(*) FILTER (WHERE is_traffic AND is_finished AND has_content AND is_clean AND has_consent)
                 AS consent,
             (SELECT count(*) FROM usable) AS chat
      FROM log) t
LEFT JOIN placed p ON true
ORDER BY p.fell_at NULLS FIRST, p.place, p.label, p.draw;

-- insert_snapshot: add the head of a snapshot.
INSERT INTO train.snapshot (tenant, endpoint, method, as_of, seed, params, sql, counts, rows, desirable,
                            undesirable, set_hash, created_by)
VALUES (%(tenant)s, %(endpoint)s, %(method)s, %(as_of)s, %(seed)s, %(params)s, %(sql)s, %(counts)s, %(rows)s,
        %(desirable)s, %(undesirable)s, %(set_hash)s, %(created_by)s)
RETURNING id::text AS id;

-- copy_rows: add the rows of a snapshot.
COPY train.snapshot_row (snapshot_id, ordinal, request_id, origin, label, payload, payload_hash) FROM STDIN;

-- audit: note the freeze in the ledger.
SELECT audit.append('snapshot.frozen', %(id)s::text,
                    jsonb_build_object('set_hash', %(set_hash)s::text, 'rows', %(rows)s::integer));

-- snapshot: one by id.
SELECT id::text AS id, tenant, endpoint, method, as_of, seed, params, sql, counts, rows, desirable, undesirable,
       set_hash, created_by, created_at
FROM train.snapshot
WHERE id = %(id)s;

-- latest: the newest of an endpoint.
SELECT id::text AS id, tenant, endpoint, method, as_of, seed, params, sql, counts, rows, desirable, undesirable,
       set_hash, created_by, created_at
FROM train.snapshot
WHERE endpoint = %(endpoint)s
ORDER BY snapshot.id DESC
LIMIT 1;

-- damaged: examples of a snapshot whose content is not what its hash says.
SELECT count(*) AS damaged
FROM train.snapshot_row
WHERE snapshot_id = %(id)s AND encode(obs.json_hash(payload), 'hex') <> payload_hash;

-- rows: the examples of a snapshot in the order in which they are trained.
SELECT ordinal, request_id::text AS request_id, origin, label, payload, payload_hash
FROM train.snapshot_row
WHERE snapshot_id = %(id)s
ORDER BY ordinal;
