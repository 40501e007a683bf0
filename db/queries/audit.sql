-- verify: every way in which the ledger is not what was written.
SELECT seq, problem FROM audit.verify();

-- events: the newest events.
SELECT seq, at, actor, action, subject, detail, encode(hash, 'hex') AS hash
FROM audit.event
ORDER BY seq DESC
LIMIT %(limit)s;
