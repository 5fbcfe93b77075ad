-- Where an agent registered from: a keyed hash, null for those from before. A part of the registrations is kept for
-- networks whose agents people let in.
alter table ops.agent_registrations add network bytea;
create index agent_registrations_by_network on ops.agent_registrations (network, created_at);
alter table ops.agent_registrations alter network set statistics 0;
