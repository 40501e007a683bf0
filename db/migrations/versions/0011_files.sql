-- Files of clients and batches of requests. The bytes are in the object store, under files/<id>.

-- uploading: the bytes are on their way; removed: nobody sees it, and its bytes are still to be deleted.
CREATE TABLE serve.file (
    id text PRIMARY KEY,
    tenant serve.label NOT NULL,
    filename text NOT NULL,
    purpose text NOT NULL CHECK (purpose IN ('batch', 'batch_output')),
    bytes bigint NOT NULL CHECK (bytes >= 0),
    sha256 text NOT NULL,
    status text NOT NULL CHECK (status IN ('uploading', 'uploaded', 'removed')),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz
);
CREATE INDEX file_by_tenant ON serve.file (tenant, created_at, id);
CREATE INDEX file_by_expiry ON serve.file (expires_at) WHERE expires_at IS NOT NULL;

-- A gateway works on a batch while it holds the lease: whoever takes it raises lease_no, and what comes with
-- an older number is refused. source, user_key and conversation are those of the request that created it.
CREATE TABLE serve.batch (
    id text PRIMARY KEY,
    tenant serve.label NOT NULL,
    endpoint text NOT NULL,
    input_file_id text NOT NULL,
    completion_window text NOT NULL,
    metadata jsonb CHECK (jsonb_typeof(metadata) = 'object'),
    output_seconds integer CHECK (output_seconds > 0),
    source text NOT NULL CHECK (source IN ('traffic', 'eval')),
    user_key text,
    conversation text,
    status text NOT NULL DEFAULT 'validating' CHECK (status IN ('validating', 'failed', 'in_progress',
        'finalizing', 'completed', 'expired', 'cancelling', 'cancelled')),
    errors jsonb CHECK (jsonb_typeof(errors) = 'array'),
    model text,
    output_file_id text,
    error_file_id text,
    total integer NOT NULL DEFAULT 0,
    completed integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    in_progress_at timestamptz,
    finalizing_at timestamptz,
    completed_at timestamptz,
    failed_at timestamptz,
    expired_at timestamptz,
    cancelling_at timestamptz,
    cancelled_at timestamptz,
    lease_no bigint NOT NULL DEFAULT 0,
    lease_until timestamptz
);
CREATE INDEX batch_by_tenant ON serve.batch (tenant, created_at, id);
CREATE INDEX batch_unfinished ON serve.batch (created_at)
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

-- Answers of a batch that are in the object store: one object holds lines of the output file, then of the
-- error file. `lines` are the numbers of the input lines that they answer.
CREATE TABLE serve.batch_part (
    batch_id text NOT NULL REFERENCES serve.batch,
    name text NOT NULL,
    sha256 text NOT NULL,
    output_bytes bigint NOT NULL CHECK (output_bytes >= 0),
    error_bytes bigint NOT NULL CHECK (error_bytes >= 0),
    lines integer[] NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (batch_id, name)
);
