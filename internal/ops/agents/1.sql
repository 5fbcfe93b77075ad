-- Agents that registered (console/agents). Of tokens there are hashes alone.

create table ops.agent_registrations (
	id              uuid primary key,
	claim_hash      bytea not null unique,
	hint            bytea not null,         -- keyed hash of the address of the person
	client_name     text not null,
	scopes          text not null,          -- separated by spaces
	address         text not null,          -- where it registered from
	created_at      timestamptz not null,
	ends_at         timestamptz not null,   -- of the claim
	organization_id uuid,                   -- what the person chose, null before
	person_id       uuid,
	project_id      uuid,
	denied          boolean not null default false,
	tried_at        timestamptz,            -- the last code
	claimed_at      timestamptz,
	used_at         timestamptz             -- the last token
);
create index agent_registrations_ends on ops.agent_registrations (ends_at) where claimed_at is null;

-- Links to the page of the claim, with the sealed code once the person approved.
create table ops.agent_attempts (
	hash            bytea primary key,
	registration_id uuid not null references ops.agent_registrations on delete cascade,
	ends_at         timestamptz not null,
	wrong           integer not null default 0,
	seal_key        text,
	code            bytea
);
create index agent_attempts_by_registration on ops.agent_attempts (registration_id);

-- A spent token has its sealed successor, which is answered again for a while.
create table ops.agent_refresh_tokens (
	hash            bytea primary key,
	registration_id uuid not null references ops.agent_registrations on delete cascade,
	ends_at         timestamptz not null,
	spent_at        timestamptz,
	seal_key        text,
	successor       bytea
);
create index agent_refresh_tokens_by_registration on ops.agent_refresh_tokens (registration_id);

alter table ops.agent_registrations alter claim_hash set statistics 0, alter hint set statistics 0,
	alter client_name set statistics 0, alter scopes set statistics 0, alter address set statistics 0;
alter table ops.agent_attempts alter hash set statistics 0, alter seal_key set statistics 0,
	alter code set statistics 0;
alter table ops.agent_refresh_tokens alter hash set statistics 0, alter seal_key set statistics 0,
	alter successor set statistics 0;
