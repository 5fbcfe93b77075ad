-- Whether the session in which an agent was approved showed a second factor: null for those from before, none.
alter table ops.agent_registrations add second_factor boolean;

-- Agents that ended with all of their person, and whose end is not in the log yet.
create table ops.agent_endings (
	id              uuid primary key,
	person_id       uuid not null,
	organization_id uuid not null
);
