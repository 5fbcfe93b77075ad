-- Programs that registered themselves (RFC 7591). A stranger chose the name and the addresses.
create table ops.oauth_clients (
	id         text primary key,
	name       text not null,
	redirects  text[] not null,
	created_at timestamptz not null
);
create index oauth_clients_by_age on ops.oauth_clients (created_at);
alter table ops.oauth_clients alter name set statistics 0, alter redirects set statistics 0;

-- What people let clients do. The event of a grant has no name and no address.
create table ops.oauth_grants (
	id              uuid primary key,
	person_id       uuid not null,
	organization_id uuid not null,
	project_id      uuid not null, -- the zero id for all projects of the person
	client_id       text not null, -- chosen by a stranger, as are the next two
	client_name     text not null,
	redirect_host   text not null,
	scopes          text[] not null,
	approved_at     timestamptz not null,
	used_at         timestamptz,
	-- SHA-256 of client_id and redirect_host: inner pages of an index keep keys of deleted rows.
	client_key      bytea not null,
	redirect_key    bytea not null,
	unique (person_id, organization_id, project_id, client_key, redirect_key)
);
create index oauth_grants_by_client on ops.oauth_grants (client_key);
alter table ops.oauth_grants alter client_id set statistics 0, alter client_name set statistics 0,
	alter redirect_host set statistics 0, alter client_key set statistics 0, alter redirect_key set statistics 0;

-- Codes, which work once and for a minute. A used one stays for a while, so that its second use is noticed.
create table ops.oauth_codes (
	code       bytea primary key, -- SHA-256
	grant_id   uuid not null references ops.oauth_grants on delete cascade,
	family     uuid not null,
	redirect   text not null,
	challenge  text not null,
	resource   text not null,
	scopes     text[] not null,
	used       boolean not null default false,
	expires_at timestamptz not null
);
create index oauth_codes_by_grant on ops.oauth_codes (grant_id);
create index oauth_codes_by_end on ops.oauth_codes (expires_at);
alter table ops.oauth_codes alter code set statistics 0, alter redirect set statistics 0,
	alter challenge set statistics 0;

-- A row is an access token with its refresh token. A family is all that came from one code. The successor of a spent
-- refresh token is sealed.
create table ops.oauth_tokens (
	refresh       bytea primary key,     -- SHA-256
	access        bytea not null unique, -- SHA-256
	grant_id      uuid not null references ops.oauth_grants on delete cascade,
	family        uuid not null,
	resource      text not null,
	scopes        text[] not null, -- of the refresh token
	narrowed      text[] not null, -- of the access token
	access_until  timestamptz not null,
	refresh_until timestamptz not null,
	spent_at      timestamptz,
	successor_key text,
	successor     bytea
);
create index oauth_tokens_by_grant on ops.oauth_tokens (grant_id);
create index oauth_tokens_by_family on ops.oauth_tokens (family);
create index oauth_tokens_by_end on ops.oauth_tokens (refresh_until);
alter table ops.oauth_tokens alter refresh set statistics 0, alter access set statistics 0,
	alter successor set statistics 0;
