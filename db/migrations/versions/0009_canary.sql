-- Figures of a running canary and the way back from an answer to what taught it.

-- One row per arm, by assignment (what the split dealt, whatever answered in the end). A user's score is
-- his mean over his rated answers; arms are compared over users, since one user's answers go together.
CREATE FUNCTION serve.canary_figures(wanted_adapter text) RETURNS TABLE (
    arm text, adapter_id text, configured_pct double precision, since timestamptz, users bigint,
    requests bigint, rated bigint, raters bigint, up_rate double precision, variance double precision,
    rating_rate double precision, regenerate_rate double precision, error_rate double precision
) LANGUAGE sql STABLE AS $$
    WITH test AS (
        SELECT a.id, a.endpoint, e.experiment, a.traffic_pct,
               (SELECT max(v.at) FROM serve.adapter_event v WHERE v.adapter_id = a.id AND v.kind = 'status'
                                                              AND v.to_status = 'canary') AS since
        FROM serve.adapter a
        JOIN serve.endpoint e ON e.name = a.endpoint
        WHERE a.id = wanted_adapter AND a.status = 'canary'
    ), arms AS (
        SELECT 'candidate' AS arm, t.id::text AS adapter_id, t.traffic_pct AS pct FROM test t
        UNION ALL
        SELECT 'control', (SELECT p.id::text FROM serve.adapter p WHERE p.endpoint = t.endpoint AND p.status = 'prod'),
               100 - (SELECT sum(c.traffic_pct) FROM serve.adapter c WHERE c.endpoint = t.endpoint AND c.status = 'canary')
        FROM test t
    ), dealt AS (
        SELECT s.arm, l.user_key, l.fb_explicit, l.fb_regen, l.finish_reason
        FROM test t
        JOIN obs.inference_log l ON l.endpoint = t.endpoint AND l.experiment = t.experiment
            AND l.created_at >= t.since AND l.source = 'traffic' AND l.variant <> 'direct'
        JOIN arms s ON s.adapter_id IS NOT DISTINCT FROM l.assigned_adapter_id
    ), per_user AS (
        SELECT d.arm, d.user_key, count(*) AS requests, count(d.fb_explicit) AS rated,
               avg((d.fb_explicit + 1) / 2.0)::double precision AS score,
               count(*) FILTER (WHERE d.fb_regen) AS regenerated,
               count(*) FILTER (WHERE d.finish_reason IN ('error', 'interrupted')) AS failed
        FROM dealt d
        GROUP BY d.arm, d.user_key
    )
    SELECT s.arm, s.adapter_id, s.pct::double precision, (SELECT t.since FROM test t),
           count(u.user_key), coalesce(sum(u.requests), 0)::bigint, coalesce(sum(u.rated), 0)::bigint,
           count(u.score), avg(u.score), var_samp(u.score),
           (sum(u.rated) / nullif(sum(u.requests), 0))::double precision,
           (sum(u.regenerated) / nullif(sum(u.requests), 0))::double precision,
           (sum(u.failed) / nullif(sum(u.requests), 0))::double precision
    FROM arms s
    LEFT JOIN per_user u ON u.arm = s.arm
    GROUP BY s.arm, s.adapter_id, s.pct
    ORDER BY s.arm
$$;

-- Users dealt since a share was last changed, against the shares: null when there is nothing to test,
-- else the p-value of a chi-square with one degree of freedom; 0 when an arm without share has users.
CREATE FUNCTION serve.canary_ratio_p(wanted_adapter text) RETURNS double precision LANGUAGE sql STABLE AS $$
    WITH test AS (
        SELECT a.id, a.endpoint, e.experiment, a.traffic_pct::double precision AS pct,
               100 - (SELECT sum(c.traffic_pct) FROM serve.adapter c
                      WHERE c.endpoint = a.endpoint AND c.status = 'canary')::double precision AS control_pct,
               (SELECT p.id FROM serve.adapter p WHERE p.endpoint = a.endpoint AND p.status = 'prod') AS control,
               (SELECT max(v.at) FROM serve.adapter_event v WHERE v.endpoint = a.endpoint AND v.kind IN ('status', 'traffic')) AS since
        FROM serve.adapter a
        JOIN serve.endpoint e ON e.name = a.endpoint
        WHERE a.id = wanted_adapter AND a.status = 'canary'
    ), seen AS (
        SELECT count(DISTINCT r.user_key) FILTER (WHERE r.assigned_adapter_id = t.id) AS candidate,
               count(DISTINCT r.user_key) FILTER (WHERE r.assigned_adapter_id IS NOT DISTINCT FROM t.control) AS control
        FROM test t
        JOIN obs.request r ON r.endpoint = t.endpoint AND r.experiment = t.experiment
            AND r.started_at >= t.since AND r.source = 'traffic' AND r.variant <> 'direct'
    )
    SELECT CASE
        WHEN s.candidate + s.control = 0 THEN NULL
        WHEN t.pct = 0 THEN CASE WHEN s.candidate > 0 THEN 0 ELSE NULL END
        WHEN t.control_pct = 0 THEN CASE WHEN s.control > 0 THEN 0 ELSE NULL END
        ELSE erfc(sqrt((
            power(s.candidate - (s.candidate + s.control) * t.pct / (t.pct + t.control_pct), 2)
                / ((s.candidate + s.control) * t.pct / (t.pct + t.control_pct))
            + power(s.control - (s.candidate + s.control) * t.control_pct / (t.pct + t.control_pct), 2)
                / ((s.candidate + s.control) * t.control_pct / (t.pct + t.control_pct))
            ) / 2)) END
    FROM test t, seen s
$$;

-- From a served request to the adapter that answered, its run, its snapshot and each row in it.
CREATE FUNCTION obs.provenance(wanted_request uuid) RETURNS TABLE (
    request_id uuid, adapter_id text, adapter_digest text, run_id uuid, snapshot_id uuid, set_hash text,
    ordinal integer, source_request_id uuid, origin text, label boolean
) LANGUAGE sql STABLE AS $$
    SELECT r.id, r.adapter_id, r.adapter_digest, run.id, s.id, s.set_hash,
           w.ordinal, w.request_id, w.origin, w.label
    FROM obs.request r
    LEFT JOIN train.run run ON run.adapter_digest = r.adapter_digest AND run.status = 'finished'
    LEFT JOIN train.snapshot s ON s.id = run.snapshot_id
    LEFT JOIN train.snapshot_row w ON w.snapshot_id = s.id
    WHERE r.id = wanted_request
    ORDER BY run.finished_at DESC, w.ordinal
$$;

-- And back: every adapter that a request has taught, with the run and snapshot it went through.
CREATE FUNCTION obs.taught_by(wanted_request uuid) RETURNS TABLE (
    adapter_id text, adapter_digest text, run_id uuid, snapshot_id uuid, status text
) LANGUAGE sql STABLE AS $$
    SELECT DISTINCT run.adapter_id::text, run.adapter_digest, run.id, w.snapshot_id, a.status
    FROM train.snapshot_row w
    JOIN train.run run ON run.snapshot_id = w.snapshot_id AND run.status = 'finished'
    LEFT JOIN serve.adapter a ON a.digest = run.adapter_digest AND a.id = run.adapter_id
    WHERE w.request_id = wanted_request
    ORDER BY 1, 3
$$;
