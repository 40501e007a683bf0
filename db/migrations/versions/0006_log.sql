-- The log as people query it, what feedback holds now, and who may be learned from.

-- Latest wins, one row a (request, kind); ties in time are broken by id.
CREATE VIEW obs.feedback_current AS
SELECT DISTINCT ON (tenant, request_id, kind) *
FROM obs.feedback
ORDER BY tenant, request_id, kind, at DESC, id DESC;

-- Feedback whose request row has not come within the grace time. Listed, never dropped.
CREATE FUNCTION obs.orphan_feedback(grace interval) RETURNS SETOF obs.feedback LANGUAGE sql STABLE AS $$
    SELECT f.*
    FROM obs.feedback f
    WHERE f.recorded_at < clock_timestamp() - grace
      AND NOT EXISTS (SELECT FROM obs.request r WHERE r.id = f.request_id AND r.tenant = f.tenant)
    ORDER BY f.at, f.id
$$;

-- One row per request with its content and feedback, knowing only what was recorded by `as_of`.
-- fb_explicit: the standing thumb (+1, -1, null). fb_regen: asked again (by feedback, or by a request
-- that names this one as its parent). fb_edited: the standing edit. messages is null once content expired.
CREATE FUNCTION obs.inference_log_at(as_of timestamptz) RETURNS TABLE (
    id uuid, created_at timestamptz, tenant text, endpoint text, requested_model text, base_model text,
    base_digest text, adapter_id text, adapter_digest text, assigned_adapter_id text, variant text,
    bucket integer, experiment text, user_key text, parent_id uuid, api text, source text,
    messages jsonb, prompt_hash text, completion text, pii_flags text[], embedding halfvec,
    fb_explicit smallint, fb_regen boolean, fb_edited text, fb_comment text,
    finish_reason text, error text, prompt_tokens integer, cached_tokens integer,
    completion_tokens integer, queue_ms double precision, ttft_ms double precision,
    duration_ms double precision, sampling jsonb, stream boolean
) LANGUAGE sql STABLE AS $$
    SELECT r.id, r.started_at, r.tenant, r.endpoint, r.requested_model, r.base_model,
           r.base_digest, r.adapter_id, r.adapter_digest, r.assigned_adapter_id, r.variant,
           r.bucket, r.experiment, r.user_key, r.parent_id, r.api, r.source,
           c.messages, c.prompt_hash, c.completion, c.pii_flags, e.embedding,
           f.thumb,
           coalesce(f.regenerated, false) OR EXISTS (
               SELECT FROM obs.request child
               WHERE child.parent_id = r.id AND child.tenant = r.tenant AND child.source = 'traffic'
                 AND child.recorded_at <= as_of),
           f.edited, f.comment,
           r.finish_reason, r.error, r.prompt_tokens, r.cached_tokens,
           r.completion_tokens, r.queue_ms, r.ttft_ms,
           r.duration_ms, r.sampling, r.stream
    FROM obs.request r
    LEFT JOIN obs.content c ON c.id = r.id
    LEFT JOIN obs.embedding e ON e.id = r.id
    LEFT JOIN LATERAL (
        SELECT (array_agg(f.value ORDER BY f.at DESC, f.id DESC) FILTER (WHERE f.kind = 'thumbs'))[1] AS thumb,
               (array_agg(f.text ORDER BY f.at DESC, f.id DESC) FILTER (WHERE f.kind = 'edit'))[1] AS edited,
               (array_agg(f.text ORDER BY f.at DESC, f.id DESC) FILTER (WHERE f.kind = 'comment'))[1] AS comment,
               bool_or(f.kind = 'regenerate') AS regenerated
        FROM obs.feedback f
        WHERE f.request_id = r.id AND f.tenant = r.tenant AND f.recorded_at <= as_of
    ) f ON true
    WHERE r.recorded_at <= as_of
$$;

CREATE VIEW obs.inference_log AS SELECT * FROM obs.inference_log_at('infinity');

-- Whether each row may be learned from, and if not, why not. Every training method starts here.
-- Consent: the newest word of the user or else of the tenant is `granted`, and the tenant has not withdrawn.
CREATE FUNCTION obs.eligibility_at(as_of timestamptz) RETURNS TABLE (
    id uuid, tenant text, is_traffic boolean, is_finished boolean, has_content boolean,
    is_clean boolean, has_consent boolean, is_eligible boolean
) LANGUAGE sql STABLE AS $$
    WITH word AS (
        SELECT DISTINCT ON (k.tenant, k.user_key) k.tenant, k.user_key, k.action
        FROM obs.consent k
        WHERE k.at <= as_of
        ORDER BY k.tenant, k.user_key, k.at DESC, k.id DESC
    ), judged AS (
        SELECT r.id, r.tenant,
               r.source = 'traffic' AS is_traffic,
               r.finish_reason IN ('stop', 'length') AS is_finished,
               c.id IS NOT NULL AND c.completion <> '' AS has_content,
               coalesce(c.pii_flags = '{}', false) AS is_clean,
               coalesce(t.action <> 'withdrawn', true)
                   AND coalesce(u.action, t.action, 'none') = 'granted' AS has_consent
        FROM obs.request r
        LEFT JOIN obs.content c ON c.id = r.id
        LEFT JOIN word t ON t.tenant = r.tenant AND t.user_key IS NULL
        LEFT JOIN word u ON u.tenant = r.tenant AND u.user_key = r.user_key
        WHERE r.recorded_at <= as_of
    )
    SELECT j.*, j.is_traffic AND j.is_finished AND j.has_content AND j.is_clean AND j.has_consent
    FROM judged j
$$;

CREATE VIEW obs.eligible AS
SELECT l.*
FROM obs.inference_log l
JOIN obs.eligibility_at('infinity') e ON e.id = l.id
WHERE e.is_eligible;
