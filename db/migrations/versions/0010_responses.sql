-- Answers of the Responses API, kept until they expire so that a later request may go on from them.
-- previous_id has no foreign key: what an answer went on from may be deleted, or expire, before it.

CREATE TABLE serve.response (
    id uuid PRIMARY KEY,
    tenant text NOT NULL,
    previous_id uuid,
    model text NOT NULL,
    status text NOT NULL CHECK (status IN ('completed', 'incomplete')),
    input_items jsonb NOT NULL CHECK (jsonb_typeof(input_items) = 'array'),
    output_items jsonb NOT NULL CHECK (jsonb_typeof(output_items) = 'array'),
    answer jsonb NOT NULL CHECK (jsonb_typeof(answer) = 'object'),
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    octets integer NOT NULL
        GENERATED ALWAYS AS (octet_length(input_items::text) + octet_length(output_items::text)) STORED
);
CREATE INDEX response_by_expiry ON serve.response (expires_at);
