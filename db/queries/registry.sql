-- epoch: the number that grows with every change a router must see.
SELECT epoch FROM serve.registry_epoch;

-- version: the epoch, and the mark that tells it from the same number of another history.
SELECT e.epoch, coalesce(c.mark::text, '') AS mark
FROM serve.registry_epoch e LEFT JOIN serve.registry_change c ON c.epoch = e.epoch;

-- changes: what has changed since a version; no row where that version is not of this history, or too old.
SELECT coalesce(array_agg(DISTINCT c.adapter_id::text) FILTER (WHERE c.adapter_id IS NOT NULL), '{}') AS adapters,
       count(*) > count(c.adapter_id) AS others
FROM serve.registry_change c
WHERE c.epoch > %(epoch)s
HAVING EXISTS (SELECT FROM serve.registry_change k WHERE k.epoch = %(epoch)s AND k.mark::text = %(mark)s);

-- base_models: all of them.
SELECT name, digest, folder, created_at FROM serve.base_model ORDER BY name;

-- endpoints: all of them.
SELECT name, tenant, base_model, experiment, anchor, created_at FROM serve.endpoint ORDER BY name;

-- adapters: those a router needs, of all or of some: loaded by their own id, or with a part in an endpoint.
SELECT id, digest, base_model, endpoint, status, traffic_pct::double precision AS traffic_pct, canary_start,
       loaded, pinned, store_uri, config, bytes, parent, replaced, run_id::text AS run_id, created_at
FROM serve.adapter
WHERE (loaded OR status IN ('canary', 'prod')) AND (%(ids)s::text[] IS NULL OR id = ANY (%(ids)s::text[]))
ORDER BY id COLLATE "C";

-- adapter: one by id.
SELECT id, digest, base_model, endpoint, status, traffic_pct::double precision AS traffic_pct, canary_start,
       loaded, pinned, store_uri, config, bytes, parent, replaced, run_id::text AS run_id, created_at
FROM serve.adapter
WHERE id = %(id)s;

-- register_base_model: add it, or take over what changed; an unchanged one stays untouched.
INSERT INTO serve.base_model AS b (name, digest, folder)
VALUES (%(name)s, %(digest)s, %(folder)s)
ON CONFLICT (name) DO UPDATE SET digest = excluded.digest, folder = excluded.folder
WHERE (b.digest, b.folder) IS DISTINCT FROM (excluded.digest, excluded.folder);

-- base_model: one by name.
SELECT name, digest, folder, created_at FROM serve.base_model WHERE name = %(name)s;

-- create_endpoint: add it unless the name is known.
INSERT INTO serve.endpoint (name, tenant, base_model)
VALUES (%(name)s, %(tenant)s, %(base_model)s)
ON CONFLICT (name) DO NOTHING;

-- endpoint: one by name.
SELECT name, tenant, base_model, experiment, anchor, created_at FROM serve.endpoint WHERE name = %(name)s;

-- set_anchor: pin or unpin the adapter that promotions may not fall behind.
UPDATE serve.endpoint SET anchor = %(anchor)s WHERE name = %(name)s;

-- register_adapter: add a candidate unless the id is known.
INSERT INTO serve.adapter (id, digest, base_model, endpoint, store_uri, config, bytes, parent, run_id)
VALUES (%(id)s, %(digest)s, %(base_model)s, %(endpoint)s, %(store_uri)s, %(config)s, %(bytes)s, %(parent)s,
        %(run_id)s)
ON CONFLICT (id) DO NOTHING;

-- publish_adapter: let a name stand for these weights and be served; no row comes back where it is served
-- already and may not be replaced. What an endpoint's version is made of stays as it was registered.
INSERT INTO serve.adapter AS a (id, digest, base_model, store_uri, config, bytes, pinned)
VALUES (%(id)s, %(digest)s, %(base_model)s, %(store_uri)s, %(config)s, %(bytes)s, %(pinned)s)
ON CONFLICT (id) DO UPDATE
SET digest = excluded.digest,
    store_uri = CASE WHEN a.endpoint IS NULL THEN excluded.store_uri ELSE a.store_uri END,
    config = CASE WHEN a.endpoint IS NULL THEN excluded.config ELSE a.config END,
    bytes = CASE WHEN a.endpoint IS NULL THEN excluded.bytes ELSE a.bytes END,
    loaded = true,
    pinned = a.pinned OR excluded.pinned
WHERE %(replace)s OR NOT a.loaded
RETURNING id;

-- set_loaded: let clients name the adapter by its id, or no longer.
UPDATE serve.adapter SET loaded = %(loaded)s WHERE id = %(id)s;

-- set_pinned: keep the adapter resident on every replica, or no longer.
UPDATE serve.adapter SET pinned = %(pinned)s WHERE id = %(id)s;

-- page: adapters of any status by id, those behind `after` that every given filter lets through.
SELECT id, digest, base_model, endpoint, status, traffic_pct::double precision AS traffic_pct, canary_start,
       loaded, pinned, store_uri, config, bytes, parent, replaced, run_id::text AS run_id, created_at
FROM serve.adapter
WHERE (%(after)s::text IS NULL OR id > %(after)s)
  AND (%(endpoint)s::text IS NULL OR endpoint = %(endpoint)s)
  AND (%(status)s::text IS NULL OR status = %(status)s)
  AND (%(base_model)s::text IS NULL OR base_model = %(base_model)s)
  AND (%(loaded)s::boolean IS NULL OR loaded = %(loaded)s)
ORDER BY id
LIMIT %(limit)s;

-- events: the history of an endpoint or an adapter, newest first.
SELECT id, adapter_id, endpoint, kind, from_status, to_status, from_digest, to_digest,
       traffic_pct::double precision AS traffic_pct, actor, reason, at
FROM serve.adapter_event
WHERE (%(endpoint)s::text IS NULL OR endpoint = %(endpoint)s)
  AND (%(adapter_id)s::text IS NULL OR adapter_id = %(adapter_id)s)
ORDER BY id DESC
LIMIT %(limit)s;
