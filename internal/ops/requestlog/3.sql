-- Finds the recalls as an identity: by a hash of project and identity, since a key of an index remains in its inner
-- pages after its row. Null for other calls.
alter table ops.requests add identity_key uuid;
alter table ops.requests alter identity_key set statistics 0;
create index requests_by_identity on ops.requests (identity_key, received_at, request_id)
	where identity_key is not null;
