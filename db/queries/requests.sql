-- insert_batch: add request rows and their contents; rows that are there already stay as they are.
WITH incoming AS (
    SELECT * FROM jsonb_to_recordset(%(records)s) AS x (
        id uuid, tenant text, endpoint text, requested_model text, base_model text, base_digest text,
        adapter_id text, adapter_digest text, assigned_adapter_id text, variant text, bucket integer,
        experiment text, user_key text, parent_id uuid, api text, started_at timestamptz,
        finished_at timestamptz, finish_reason text, error text, prompt_tokens integer,
        cached_tokens integer, completion_tokens integer, queue_ms double precision,
        ttft_ms double precision, duration_ms double precision, sampling jsonb, stream boolean,
        source text, messages jsonb, completion text)
), content AS (
    INSERT INTO obs.content (id, messages, completion)
    SELECT id, messages, completion FROM incoming ORDER BY id
    ON CONFLICT DO NOTHING
)
INSERT INTO obs.request
    (id, tenant, endpoint, requested_model, base_model, base_digest, adapter_id, adapter_digest,
     assigned_adapter_id, variant, bucket, experiment, user_key, parent_id, api, started_at, finished_at,
     finish_reason, error, prompt_tokens, cached_tokens, completion_tokens, queue_ms, ttft_ms, duration_ms,
     sampling, stream, source)
SELECT id, tenant, endpoint, requested_model, base_model, base_digest, adapter_id, adapter_digest,
       assigned_adapter_id, variant, bucket, experiment, user_key, parent_id, api, started_at, finished_at,
       finish_reason, error, prompt_tokens, cached_tokens, completion_tokens, queue_ms, ttft_ms, duration_ms,
       sampling, stream, source
FROM incoming
ORDER BY id
ON CONFLICT DO NOTHING;

-- log_row: one request with its content and feedback, by id.
SELECT to_jsonb(l) - 'embedding' AS row FROM obs.inference_log l WHERE l.id = %(id)s;
