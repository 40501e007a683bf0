-- register_suite: note a version of a suite; the version noted last is the one that counts.
INSERT INTO train.eval_suite (name, suite_hash, n_cases)
VALUES (%(name)s, %(suite_hash)s, %(n_cases)s)
ON CONFLICT (name, suite_hash) DO UPDATE SET n_cases = excluded.n_cases, registered_at = clock_timestamp();

-- set_metric: say what the gate demands of a metric.
INSERT INTO train.eval_metric (suite, metric, endpoint, direction, floor, tolerance, anchor_tolerance, min_n,
                               max_unscored, required)
VALUES (%(suite)s, %(metric)s, %(endpoint)s, %(direction)s, %(floor)s, %(tolerance)s, %(anchor_tolerance)s,
        %(min_n)s, %(max_unscored)s, %(required)s)
ON CONFLICT (suite, metric, endpoint) DO UPDATE
SET direction = excluded.direction, floor = excluded.floor, tolerance = excluded.tolerance,
    anchor_tolerance = excluded.anchor_tolerance, min_n = excluded.min_n,
    max_unscored = excluded.max_unscored, required = excluded.required;

-- metrics: the rules that hold for an endpoint.
SELECT suite, metric, direction, floor, tolerance, anchor_tolerance, min_n, max_unscored, required, endpoint
FROM train.rules_for(%(endpoint)s)
ORDER BY suite, metric;

-- lock_subject: writers of one subject's attempts take turns.
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(chr(31), %(subject)s::text, %(base_digest)s::text, %(suite)s::text), 1));

-- next_attempt: the number of a new attempt.
SELECT coalesce(max(attempt), 0) + 1 AS attempt
FROM train.eval_result
WHERE subject = %(subject)s AND base_digest = %(base_digest)s AND suite = %(suite)s;

-- insert_result: add one metric's figures of an attempt.
INSERT INTO train.eval_result (subject, base_digest, suite, suite_hash, metric, attempt, value, low, high, n,
                               unscored)
VALUES (%(subject)s, %(base_digest)s, %(suite)s, %(suite_hash)s, %(metric)s, %(attempt)s, %(value)s, %(low)s,
        %(high)s, %(n)s, %(unscored)s);

-- insert_case: add one answered case of an attempt.
INSERT INTO train.eval_case (subject, base_digest, suite, attempt, case_id, prompt_hash, completion,
                             finish_reason, scores)
VALUES (%(subject)s, %(base_digest)s, %(suite)s, %(attempt)s, %(case_id)s, %(prompt_hash)s, %(completion)s,
        %(finish_reason)s, %(scores)s);

-- latest: the newest attempt of each suite of a subject.
SELECT subject, base_digest, suite, suite_hash, metric, value, low, high, n, unscored, attempt, at
FROM train.newest_results(%(subject)s, %(base_digest)s)
WHERE %(suite)s::text IS NULL OR suite = %(suite)s
ORDER BY suite, metric;

-- held_out: the prompts of every evaluation answered so far.
SELECT DISTINCT prompt_hash FROM train.eval_case ORDER BY prompt_hash;
