-- The promotion gate: every reason against a promotion is a row; no row means that it may go ahead.

-- What is demanded for an endpoint: its own rule for a metric, else the rule for all endpoints.
CREATE FUNCTION train.rules_for(wanted_endpoint text) RETURNS SETOF train.eval_metric LANGUAGE sql STABLE AS $$
    SELECT DISTINCT ON (m.suite, m.metric) m.*
    FROM train.eval_metric m
    WHERE m.endpoint = wanted_endpoint OR m.endpoint IS NULL
    ORDER BY m.suite, m.metric, m.endpoint NULLS LAST
$$;

-- The newest attempt of each suite, whole: what that attempt left out is missing, whatever older ones say.
CREATE FUNCTION train.newest_results(wanted_subject text, wanted_base text) RETURNS SETOF train.eval_result
LANGUAGE sql STABLE AS $$
    SELECT r.*
    FROM train.eval_result r
    WHERE r.subject = wanted_subject AND r.base_digest = wanted_base
      AND r.attempt = (SELECT max(n.attempt) FROM train.eval_result n
                       WHERE n.subject = r.subject AND n.base_digest = r.base_digest AND n.suite = r.suite)
$$;

CREATE FUNCTION train.is_worse(direction text, value double precision, reference double precision,
                               tolerance double precision) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN CASE direction WHEN 'higher' THEN reference - value ELSE value - reference END > tolerance + 1e-9;

-- Reasons that the measured figures of one subject give, against another one and the rules.
CREATE FUNCTION train.figure_blockers(
    wanted_endpoint text, wanted_base text, candidate_subject text, current_subject text, anchor_subject text
) RETURNS TABLE (
    reason text, suite text, metric text, candidate_value double precision,
    current_value double precision, limit_value double precision, detail text
) LANGUAGE sql STABLE AS $$
    SELECT v.reason, m.suite, m.metric, c.value, p.value, v.limit_value, v.detail
    FROM train.rules_for(wanted_endpoint) m
    LEFT JOIN train.newest_results(candidate_subject, wanted_base) c USING (suite, metric)
    LEFT JOIN train.newest_results(current_subject, wanted_base) p USING (suite, metric)
    LEFT JOIN train.newest_results(anchor_subject, wanted_base) a USING (suite, metric)
    LEFT JOIN LATERAL (SELECT s.suite_hash FROM train.eval_suite s WHERE s.name = m.suite
                       ORDER BY s.registered_at DESC LIMIT 1) s ON true
    CROSS JOIN LATERAL (SELECT CASE m.direction WHEN 'higher' THEN c.low ELSE c.high END AS bound,
                               coalesce(m.anchor_tolerance, m.tolerance) AS anchor_tolerance) x
    CROSS JOIN LATERAL (VALUES
        (m.required AND c.id IS NULL, 'missing_candidate', NULL::double precision,
         'the candidate has no result for this metric'),
        (m.required AND p.id IS NULL, 'missing_current', NULL,
         'the current version has no result for this metric'),
        (m.required AND c.id IS NOT NULL AND c.value IS NULL, 'null_candidate', NULL,
         'the candidate''s result has no value'),
        (m.required AND p.id IS NOT NULL AND p.value IS NULL, 'null_current', NULL,
         'the current version''s result has no value'),
        (c.n < m.min_n, 'too_few_candidate', m.min_n,
         format('%s scored cases of the candidate, at least %s are wanted', c.n, m.min_n)),
        (p.n < m.min_n, 'too_few_current', m.min_n,
         format('%s scored cases of the current version, at least %s are wanted', p.n, m.min_n)),
        (c.unscored > m.max_unscored * (c.n + c.unscored), 'unscored', m.max_unscored,
         format('%s of %s cases could not be scored', c.unscored, c.n + c.unscored)),
        (c.suite_hash <> s.suite_hash OR (c.id IS NOT NULL AND s.suite_hash IS NULL), 'suite_outdated', NULL,
         'the candidate was not measured on the registered version of the suite'),
        (c.suite_hash <> p.suite_hash, 'suite_changed', NULL,
         'candidate and current version were measured on different versions of the suite'),
        (m.floor IS NOT NULL AND c.value IS NOT NULL AND x.bound IS NULL, 'no_bound', m.floor,
         'the candidate''s result has no confidence bound to hold against the floor'),
        (train.is_worse(m.direction, x.bound, m.floor, 0), 'floor', m.floor,
         format('the confidence bound %s misses the floor %s (%s is better)', x.bound, m.floor, m.direction)),
        (train.is_worse(m.direction, c.value, p.value, m.tolerance), 'worse_than_current', m.tolerance,
         format('%s against %s is worse by more than %s (%s is better)',
                c.value, p.value, m.tolerance, m.direction)),
        (m.required AND anchor_subject IS NOT NULL AND a.value IS NULL, 'missing_anchor', NULL,
         'the endpoint''s anchor has no value for this metric'),
        (c.suite_hash <> a.suite_hash, 'anchor_suite_changed', NULL,
         'candidate and anchor were measured on different versions of the suite'),
        (train.is_worse(m.direction, c.value, a.value, x.anchor_tolerance), 'worse_than_anchor', x.anchor_tolerance,
         format('%s against %s of the anchor is worse by more than %s (%s is better)',
                c.value, a.value, x.anchor_tolerance, m.direction))
    ) AS v (found, reason, limit_value, detail)
    WHERE v.found
    ORDER BY m.suite, m.metric, v.reason
$$;

-- `current` null: the endpoint's prod, or its base model while there is none.
CREATE FUNCTION serve.promotion_blockers(candidate text, current text DEFAULT NULL) RETURNS TABLE (
    reason text, suite text, metric text, candidate_value double precision,
    current_value double precision, limit_value double precision, detail text
) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    new_one serve.adapter;
    old_one serve.adapter;
    place serve.endpoint;
    base text;
    anchor_digest text;
BEGIN
    SELECT * INTO new_one FROM serve.adapter a WHERE a.id = promotion_blockers.candidate;
    IF new_one.id IS NULL THEN
        reason := 'unknown_candidate';
        detail := format('no adapter has the id %L', promotion_blockers.candidate);
        RETURN NEXT;
        RETURN;
    END IF;
    IF new_one.endpoint IS NULL THEN
        reason := 'no_endpoint';
        detail := format('adapter %s serves no endpoint', new_one.id);
        RETURN NEXT;
        RETURN;
    END IF;
    IF promotion_blockers.current IS NOT NULL THEN
        SELECT * INTO old_one FROM serve.adapter a
        WHERE a.id = promotion_blockers.current AND a.endpoint = new_one.endpoint;
        IF old_one.id IS NULL THEN
            reason := 'unknown_current';
            detail := format('no adapter of endpoint %s has the id %L', new_one.endpoint, promotion_blockers.current);
            RETURN NEXT;
            RETURN;
        END IF;
    ELSE
        SELECT * INTO old_one FROM serve.adapter a WHERE a.endpoint = new_one.endpoint AND a.status = 'prod';
    END IF;
    SELECT * INTO place FROM serve.endpoint e WHERE e.name = new_one.endpoint;
    SELECT b.digest INTO base FROM serve.base_model b WHERE b.name = new_one.base_model;
    SELECT a.digest INTO anchor_digest FROM serve.adapter a WHERE a.id = place.anchor;
    IF NOT EXISTS (SELECT FROM train.rules_for(place.name) m WHERE m.required) THEN
        reason := 'no_metrics';
        detail := format('no required metric is registered for endpoint %s', place.name);
        RETURN NEXT;
    END IF;
    RETURN QUERY SELECT * FROM train.figure_blockers(
        place.name, base, new_one.digest, coalesce(old_one.digest, 'base'), anchor_digest);
END $$;

CREATE FUNCTION serve.can_promote(candidate text, current text DEFAULT NULL) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT NOT EXISTS (SELECT FROM serve.promotion_blockers(candidate, current))
$$;

-- Whoever changes what the gate demands leaves a trace, as whoever passes it does.
CREATE FUNCTION train.audit_rule() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW IS DISTINCT FROM OLD THEN
        PERFORM audit.append('gate.rule', coalesce(NEW.suite, OLD.suite) || '/' || coalesce(NEW.metric, OLD.metric),
                             jsonb_build_object('from', to_jsonb(OLD), 'to', to_jsonb(NEW)));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit_rule AFTER INSERT OR UPDATE OR DELETE ON train.eval_metric
    FOR EACH ROW EXECUTE FUNCTION train.audit_rule();

CREATE FUNCTION serve.audit_anchor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM audit.append('gate.anchor', NEW.name, jsonb_build_object('from', OLD.anchor, 'to', NEW.anchor));
    RETURN NULL;
END $$;
CREATE TRIGGER audit_anchor AFTER UPDATE ON serve.endpoint
    FOR EACH ROW WHEN (OLD.anchor IS DISTINCT FROM NEW.anchor) EXECUTE FUNCTION serve.audit_anchor();
