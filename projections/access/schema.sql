-- Who may call, and what binds the calls: organizations, projects, keys. Only hashes of keys are here. Caps are null
-- where there is none; tenths are of a credit.
create table log (
	id        uuid primary key,
	opened_at timestamptz not null
);

create table organizations (
	id                     uuid primary key,
	name                   text not null,
	created_at             timestamptz not null,
	plan                   text not null,
	spend_cap_tenths       bigint,
	owner_id               uuid,
	owner_email            text not null,
	prepared               boolean not null,
	management_key_id      uuid,
	management_key_hash    bytea unique,
	management_key_prefix  text,
	management_key_suffix  text
);

create table projects (
	id              uuid primary key,
	organization_id uuid not null,
	number          bigint not null unique,
	slug            text not null,
	name            text not null,
	namespace       uuid not null,
	archived        boolean not null,
	ingestion_cap     bigint,
	credit_cap_tenths bigint,
	created_at      timestamptz not null,
	unique (organization_id, slug)
);

create table keys (
	id         uuid primary key,
	project_id uuid not null,
	name       text not null,
	hash       bytea not null unique,
	prefix     text not null,
	suffix     text not null,
	created_at timestamptz not null,
	revoked_at timestamptz
);
create index keys_by_project on keys (project_id);

-- Events of other systems become data points by the settings of a webhook, which are JSON. Of its token only the hash
-- is here; token_id names the sealed token.
create table webhooks (
	id         text primary key,
	project_id uuid not null,
	token_id   uuid not null unique,
	token_hash bytea not null unique,
	settings   text not null,
	paused     boolean not null,
	created_at timestamptz not null
);
create index webhooks_by_project on webhooks (project_id);

-- No statistics of texts: Postgres would keep whole values there, also of what is deleted.
alter table organizations alter name set statistics 0, alter owner_email set statistics 0,
	alter management_key_hash set statistics 0,
	alter management_key_prefix set statistics 0, alter management_key_suffix set statistics 0;
alter table projects alter slug set statistics 0, alter name set statistics 0;
alter table webhooks alter id set statistics 0, alter token_hash set statistics 0, alter settings set statistics 0;
alter table keys alter name set statistics 0, alter hash set statistics 0, alter prefix set statistics 0,
	alter suffix set statistics 0;
