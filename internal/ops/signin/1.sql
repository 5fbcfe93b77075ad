-- How a person signs in. Addresses are in the log alone: verified is a keyed hash of the address that was verified, so
-- that the verification ends with the address.
create table ops.signin_people (
	person_id uuid primary key,
	password  text,    -- argon2id with its parameters and salt
	generated boolean not null default false, -- the credentials file holds the password
	verified  bytea,
	vouched   uuid, -- the organization whose Admin let the person in, or the zero id for the operator
	totp_key  text,    -- name of the seal key of totp
	totp      bytea,   -- sealed
	totp_step bigint not null default 0, -- the last step whose code was used
	zone      text not null default ''
);
alter table ops.signin_people alter password set statistics 0, alter verified set statistics 0,
	alter totp_key set statistics 0, alter totp set statistics 0, alter zone set statistics 0;

-- Codes for those who lost their second factor; a used one is deleted.
create table ops.signin_recovery_codes (
	person_id uuid not null references ops.signin_people on delete cascade,
	code      bytea not null, -- SHA-256
	primary key (person_id, code)
);
alter table ops.signin_recovery_codes alter code set statistics 0;

-- The accounts of people at OpenID Connect providers. Inner pages of an index keep keys of deleted rows, so the key is
-- a hash.
create table ops.signin_accounts (
	issuer    text not null,
	account   bytea primary key, -- keyed hash of issuer and subject
	person_id uuid not null references ops.signin_people on delete cascade
);
create index signin_accounts_by_person on ops.signin_accounts (person_id);
alter table ops.signin_accounts alter issuer set statistics 0, alter account set statistics 0;

create table ops.signin_sessions (
	id              uuid primary key,
	token           bytea not null unique, -- SHA-256
	person_id       uuid not null,
	organization_id uuid, -- chosen last
	pending         boolean not null, -- waits for the second factor
	second_factor   boolean not null,
	browser         text not null,
	address         text not null,
	created_at      timestamptz not null,
	used_at         timestamptz not null,
	expires_at      timestamptz not null
);
create index signin_sessions_by_person on ops.signin_sessions (person_id);
create index signin_sessions_by_end on ops.signin_sessions (expires_at);
create index signin_sessions_by_use on ops.signin_sessions (used_at);
alter table ops.signin_sessions alter token set statistics 0, alter browser set statistics 0,
	alter address set statistics 0;

-- Links that work once. payload is sealed; a person is null until a sign-up is confirmed.
create table ops.signin_links (
	token       bytea primary key, -- SHA-256
	purpose     text not null,
	person_id   uuid,
	verified    bytea, -- keyed hash of the address that the use of the link verifies
	vouched     uuid,  -- the organization whose Admin made the link
	payload_key text not null,
	payload     bytea not null,
	expires_at  timestamptz not null,
	unique (person_id, purpose)
);
create index signin_links_by_end on ops.signin_links (expires_at);
alter table ops.signin_links alter token set statistics 0, alter purpose set statistics 0,
	alter verified set statistics 0, alter payload_key set statistics 0, alter payload set statistics 0;

-- Attempts at a provider that were finished, so that none is finished twice.
create table ops.signin_attempts (
	id         uuid primary key,
	expires_at timestamptz not null
);
create index signin_attempts_by_end on ops.signin_attempts (expires_at);

-- Failures in a window of time, by a hash of who failed. Nothing depends on it after a crash of the database.
create unlogged table ops.signin_failures (
	who      bytea primary key,
	failures integer not null,
	until    timestamptz not null
);
create index signin_failures_by_end on ops.signin_failures (until);
alter table ops.signin_failures alter who set statistics 0;
