-- figures: both arms of a running canary.
SELECT arm, adapter_id, configured_pct, since, users, requests, rated, raters, up_rate, variance, rating_rate,
       regenerate_rate, error_rate
FROM serve.canary_figures(%(adapter_id)s);

-- ratio_p: whether the users were dealt as configured.
SELECT serve.canary_ratio_p(%(adapter_id)s) AS p;
