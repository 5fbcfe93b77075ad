-- Whether the session in which a grant was made showed a second factor: null for those from before, none.
alter table ops.oauth_grants add second_factor boolean;

-- Grants that ended with all of their person, and whose end is not in the log yet.
create table ops.oauth_endings (
	id              uuid primary key,
	person_id       uuid not null,
	organization_id uuid not null
);
