-- What signs the checkpoints of the audit trees, and copies them. None of it is in the log or in a backup: a restored
-- log begins another origin, with a key of its own.

-- The keys. The public part is in the log before a key signs; a key that no event names yet is not used.
create table ops.audit_keys (
	id              uuid primary key,
	organization_id uuid not null, -- zero for the deployment, as in the log
	origin          text not null,
	verifier        text not null, -- the public key, as a signed note has it
	seal_key        text not null, -- name of the key that it is sealed with
	sealed          bytea not null
);
create index audit_keys_by_organization on ops.audit_keys (organization_id);
-- No statistics of sealed keys: Postgres would keep whole values there, also of keys that are gone.
alter table ops.audit_keys alter sealed set statistics 0;

-- The largest tree of each organization that was signed, or was about to be.
create table ops.audit_signed (
	organization_id uuid primary key,
	size            bigint not null,
	root            bytea not null
);

-- The last checkpoint that a place outside has: the anchor, or a witness.
create table ops.audit_copies (
	place           text not null,
	organization_id uuid not null,
	origin          text not null,
	size            bigint not null, -- of the checkpoint
	tiles           bigint not null, -- up to which leaf its tiles are copied, as the anchor counts
	note            text not null,   -- the checkpoint, as the anchor has it
	waits_since     timestamptz,     -- since when a newer one waits
	primary key (place, organization_id)
);

-- Which process does a task. Two at once would do no harm but the same work twice.
create table ops.audit_turns (
	task   text primary key,
	holder uuid not null,
	until  timestamptz not null
);
