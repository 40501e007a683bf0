-- begin: a file whose bytes are on their way.
INSERT INTO serve.file (id, tenant, filename, purpose, bytes, sha256, status, expires_at)
VALUES (%(id)s, %(tenant)s, %(filename)s, %(purpose)s, 0, '', 'uploading', now() + %(lifetime)s);

-- complete: its bytes are in the store.
UPDATE serve.file SET status = 'uploaded', bytes = %(bytes)s, sha256 = %(sha256)s
WHERE id = %(id)s AND status = 'uploading'
RETURNING id, tenant, filename, purpose, bytes, sha256, created_at, expires_at;

-- get: one file that its tenant sees.
SELECT id, tenant, filename, purpose, bytes, sha256, created_at, expires_at FROM serve.file
WHERE id = %(id)s AND tenant = %(tenant)s AND status = 'uploaded' AND (expires_at IS NULL OR expires_at > now());

-- page_down: files of a tenant, the newest first, behind `after`.
SELECT id, tenant, filename, purpose, bytes, sha256, created_at, expires_at FROM serve.file f
WHERE tenant = %(tenant)s AND status = 'uploaded' AND (expires_at IS NULL OR expires_at > now())
  AND (%(purpose)s::text IS NULL OR purpose = %(purpose)s)
  AND (%(after)s::text IS NULL OR (created_at, id) <
       (SELECT a.created_at, a.id FROM serve.file a WHERE a.id = %(after)s AND a.tenant = f.tenant))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s;

-- page_up: files of a tenant, the oldest first, behind `after`.
SELECT id, tenant, filename, purpose, bytes, sha256, created_at, expires_at FROM serve.file f
WHERE tenant = %(tenant)s AND status = 'uploaded' AND (expires_at IS NULL OR expires_at > now())
  AND (%(purpose)s::text IS NULL OR purpose = %(purpose)s)
  AND (%(after)s::text IS NULL OR (created_at, id) >
       (SELECT a.created_at, a.id FROM serve.file a WHERE a.id = %(after)s AND a.tenant = f.tenant))
ORDER BY created_at, id LIMIT %(limit)s;

-- remove: nobody sees the file any more.
UPDATE serve.file SET status = 'removed'
WHERE id = %(id)s AND tenant = %(tenant)s AND status = 'uploaded' AND (expires_at IS NULL OR expires_at > now());

-- gone: files whose bytes are to be deleted: removed, expired, or given up by whoever uploaded them.
SELECT id FROM serve.file
WHERE status = 'removed' OR expires_at <= now()
   OR (status = 'uploading' AND created_at <= now() - interval '1 day')
ORDER BY created_at LIMIT %(limit)s;

-- forget: the bytes of a file are gone too.
DELETE FROM serve.file WHERE id = %(id)s AND (status <> 'uploaded' OR expires_at <= now());
