-- of_request: from a served request to the rows that taught the adapter which answered it.
SELECT request_id::text AS request_id, adapter_id, adapter_digest, run_id::text AS run_id,
       snapshot_id::text AS snapshot_id, set_hash, ordinal, source_request_id::text AS source_request_id,
       origin, label
FROM obs.provenance(%(request_id)s);

-- taught_by: the adapters that a request has taught.
SELECT adapter_id, adapter_digest, run_id::text AS run_id, snapshot_id::text AS snapshot_id, status
FROM obs.taught_by(%(request_id)s);
