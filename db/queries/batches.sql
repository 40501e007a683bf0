-- create: a batch that waits for a gateway.
INSERT INTO serve.batch (id, tenant, endpoint, input_file_id, completion_window, metadata, output_seconds,
                         source, user_key, conversation, expires_at)
VALUES (%(id)s, %(tenant)s, %(endpoint)s, %(input_file_id)s, %(completion_window)s, %(metadata)s,
        %(output_seconds)s, %(source)s, %(user_key)s, %(conversation)s,
        now() + make_interval(secs => %(window_s)s))
RETURNING *;

-- get: one batch of a tenant.
SELECT * FROM serve.batch WHERE id = %(id)s AND tenant = %(tenant)s;

-- page: batches of a tenant, the newest first, behind `after`.
SELECT * FROM serve.batch b
WHERE tenant = %(tenant)s AND (%(after)s::text IS NULL OR (created_at, id) <
      (SELECT a.created_at, a.id FROM serve.batch a WHERE a.id = %(after)s AND a.tenant = b.tenant))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- cancel: tell whoever works on a batch to end it; one that is ending already stays as it is.
UPDATE serve.batch SET status = 'cancelling', cancelling_at = coalesce(cancelling_at, now())
WHERE id = %(id)s AND tenant = %(tenant)s AND status IN ('validating', 'in_progress', 'cancelling')
RETURNING *;

-- claim: take the lease of the oldest batch that nobody works on.
UPDATE serve.batch SET lease_no = lease_no + 1, lease_until = now() + make_interval(secs => %(seconds)s)
WHERE id = (
    SELECT id FROM serve.batch
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling')
      AND (lease_until IS NULL OR lease_until <= now())
    ORDER BY created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *;

-- renew: hold the lease on, or let it end in so many seconds.
UPDATE serve.batch SET lease_until = now() + make_interval(secs => %(seconds)s)
WHERE id = %(id)s AND lease_no = %(lease_no)s
RETURNING *;

-- held: lock the batch for the holder of the lease.
SELECT status FROM serve.batch WHERE id = %(id)s AND lease_no = %(lease_no)s FOR UPDATE;

-- accept: the input is sound.
UPDATE serve.batch SET
    status = CASE WHEN status = 'validating' THEN 'in_progress' ELSE status END,
    in_progress_at = coalesce(in_progress_at, now()),
    total = %(total)s,
    model = %(model)s
WHERE id = %(id)s AND status IN ('validating', 'cancelling');

-- reject: the input is not sound.
UPDATE serve.batch SET status = 'failed', failed_at = now(), errors = %(errors)s, total = %(total)s
WHERE id = %(id)s;

-- add_part: count what a part brought, once.
WITH part AS (
    INSERT INTO serve.batch_part (batch_id, name, sha256, output_bytes, error_bytes, lines)
    VALUES (%(id)s, %(name)s, %(sha256)s, %(output_bytes)s, %(error_bytes)s, %(lines)s)
    ON CONFLICT DO NOTHING
    RETURNING batch_id
)
UPDATE serve.batch b SET
    completed = completed + %(completed)s,
    failed = failed + %(failed)s,
    input_tokens = input_tokens + %(input_tokens)s,
    cached_tokens = cached_tokens + %(cached_tokens)s,
    output_tokens = output_tokens + %(output_tokens)s
FROM part WHERE b.id = part.batch_id;

-- parts: what is in the object store of a batch, in order of arrival.
SELECT name, sha256, output_bytes, error_bytes, lines FROM serve.batch_part
WHERE batch_id = %(id)s ORDER BY written_at, name;

-- finalize: all answers are there that there will be; one that is being cancelled stays so.
UPDATE serve.batch SET status = 'finalizing', finalizing_at = now() WHERE id = %(id)s AND status = 'in_progress';

-- add_file: a file of answers, which belongs to the batch's tenant from now on.
INSERT INTO serve.file (id, tenant, filename, purpose, bytes, sha256, status, expires_at)
SELECT %(file_id)s, tenant, %(filename)s, 'batch_output', %(bytes)s, %(sha256)s, 'uploaded',
       now() + make_interval(secs => output_seconds)
FROM serve.batch WHERE id = %(id)s
ON CONFLICT DO NOTHING;

-- finish: the batch has come to its end, or to that of a cancelled one.
UPDATE serve.batch SET
    status = CASE WHEN status = 'cancelling' THEN 'cancelled' ELSE %(status)s END,
    completed_at = CASE WHEN status <> 'cancelling' AND %(status)s = 'completed' THEN now() END,
    expired_at = CASE WHEN status <> 'cancelling' AND %(status)s = 'expired' THEN now() END,
    cancelled_at = CASE WHEN status = 'cancelling' THEN now() END,
    output_file_id = %(output_file_id)s,
    error_file_id = %(error_file_id)s
WHERE id = %(id)s AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

-- leftovers: batches that have ended and whose parts are still there.
SELECT DISTINCT batch_id AS id FROM serve.batch_part p JOIN serve.batch b ON b.id = p.batch_id
WHERE b.status IN ('completed', 'failed', 'expired', 'cancelled');

-- forget_parts: the parts of a batch are deleted from the object store.
DELETE FROM serve.batch_part WHERE batch_id = %(id)s;

-- unfinished: batches that are still worked on.
SELECT id FROM serve.batch WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
