-- The addresses that a person proved to the deployment.
create table ops.signin_proofs (
	person_id uuid not null references ops.signin_people on delete cascade,
	address   bytea not null, -- keyed hash
	proved_at timestamptz not null, -- the last time
	primary key (person_id, address)
);
alter table ops.signin_proofs alter address set statistics 0;
insert into ops.signin_proofs (person_id, address, proved_at)
	select person_id, verified, now() from ops.signin_people where verified is not null;
alter table ops.signin_people drop verified;

-- A link belongs to the organization whose Admin made it, the zero id for none.
update ops.signin_links set vouched = '00000000-0000-0000-0000-000000000000' where vouched is null;
alter table ops.signin_links rename vouched to organization_id;
alter table ops.signin_links alter organization_id set not null,
	drop constraint signin_links_person_id_purpose_key, add unique (person_id, purpose, organization_id);
