-- Who may call, and what binds the calls: organizations with their members, projects, keys. Only hashes of keys are
-- here. Caps are null where there is none; tenths are of a credit.
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
	owned                  boolean not null,    -- it has, or had, an owner
	prepared               boolean not null,
	second_factor          boolean not null,    -- its members need one to sign in
	visit_days             bigint not null,     -- for how many days it keeps visits
	auditor_texts          boolean not null,    -- auditors may read texts
	position               bigint not null,     -- of the event that created it
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
	description     text not null,
	namespace       uuid not null,              -- ids use a namespace that derives from it and the hash key
	archived        boolean not null,
	ingestion_cap     bigint,
	credit_cap_tenths bigint,
	reads           text not null,              -- how reads are recorded; '' if they are not
	read_days       int not null,               -- how long records of reads are kept
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

-- People, from the first claim of an address until nothing of them is left. email is null before the registration and
-- once the person is removed.
create table people (
	id         uuid primary key,
	email      text,
	removed    boolean not null,
	claimed_at timestamptz not null
);

-- The addresses that are claimed and not released: one of a person, two around a change. The stream of an address is
-- named by a keyed hash.
create table claims (
	person_id uuid not null,
	address   text not null,
	primary key (person_id, address)
);

-- Offers of memberships to addresses, until their streams are tombstoned. address is the name of the stream of the
-- address, a keyed hash. role is null for one that was not made, and expires_at for one that is not open. What is left
-- of an offer at settle_at is removed then.
create table offers (
	id              uuid primary key,
	organization_id uuid not null,
	email           text not null,
	address         text not null,
	addressed_at    timestamptz not null,
	role            text,
	expires_at      timestamptz,
	settle_at       timestamptz not null
);
create index offers_by_organization on offers (organization_id);
create index offers_to_settle on offers (settle_at);
create index offers_by_address on offers (address);

-- Members of organizations, by the id of the person, who may be erased already. position is that of the event that gave
-- the role.
create table members (
	organization_id uuid not null,
	person_id       uuid not null,
	role            text not null,
	position        bigint not null,
	primary key (organization_id, person_id)
);
create index members_by_person on members (person_id);

-- The address that a person had when the person last began to join an organization: what was given to an address is
-- opened by who proves that address, whatever address the person has later. Rows end with the person.
create table joins (
	person_id       uuid not null,
	organization_id uuid not null,
	email           text not null,
	primary key (person_id, organization_id)
);

-- What members with the role member may do in projects: read or write. Owners and admins may write in each.
create table grants (
	organization_id uuid not null,
	person_id       uuid not null,
	project_id      uuid not null,
	access          text not null,
	primary key (organization_id, person_id, project_id)
);

-- Agents that members approved. project_id is null for each project that the member may see; scopes are separated by
-- spaces. A revoked agent gets no further token, a stopped one opens nothing.
create table agents (
	id              uuid primary key,
	organization_id uuid not null,
	person_id       uuid not null,
	project_id      uuid,
	scopes          text not null,
	approved_at     timestamptz not null,
	revoked         boolean not null,
	stopped         boolean not null
);
create index agents_by_organization on agents (organization_id, person_id);

-- What members let clients do (OAuth). One that has ended, also by the end of the membership, stays so.
create table client_grants (
	id              uuid primary key,
	organization_id uuid not null,
	person_id       uuid not null,
	ended           boolean not null
);
create index client_grants_by_organization on client_grants (organization_id, person_id);

-- The streams of what people did without a change, and of what operators read, until they end. Each is of a month that
-- ends at ends_at; person_id is null for operators. The rows of the events are in schema history.
create table visit_months (
	stream          text primary key,
	organization_id uuid not null,
	person_id       uuid,
	ends_at         timestamptz not null
);

-- No statistics of texts: Postgres would keep whole values there, also of what is deleted.
alter table organizations alter name set statistics 0, alter management_key_hash set statistics 0,
	alter management_key_prefix set statistics 0, alter management_key_suffix set statistics 0;
alter table projects alter slug set statistics 0, alter name set statistics 0, alter description set statistics 0;
alter table webhooks alter id set statistics 0, alter token_hash set statistics 0, alter settings set statistics 0;
alter table keys alter name set statistics 0, alter hash set statistics 0, alter prefix set statistics 0,
	alter suffix set statistics 0;
alter table people alter email set statistics 0;
alter table joins alter email set statistics 0;
alter table claims alter address set statistics 0;
alter table offers alter email set statistics 0, alter address set statistics 0;
