-- The people who are being erased. The row of a person goes when the erasure has ended: nothing else holds the name
-- then. What was done is in the stream of the erasure.
create table ops.person_erasures (
	id           uuid primary key,
	project_id   uuid not null,
	identity     text not null,
	requested_by text not null,
	requested_at timestamptz not null,
	-- SHA-256 of project and identity: inner pages of an index keep keys of deleted rows.
	identity_key bytea not null unique
);
alter table ops.person_erasures alter identity set statistics 0, alter identity_key set statistics 0,
	alter requested_by set statistics 0;
