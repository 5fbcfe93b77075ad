-- Where a program registered from: a keyed hash, null for those from before. A part of the registrations is kept for
-- networks whose programs people let in.
alter table ops.oauth_clients add network bytea;
create index oauth_clients_by_network on ops.oauth_clients (network, created_at);
alter table ops.oauth_clients alter network set statistics 0;
