-- +goose Up
-- Counted recalls stay outside the log for minutes, seen identities for an hour. since is when a
-- row began; taken is when a flush was last handed to a process.
alter table ops.charges add column taken timestamptz;
update ops.charges set taken = since where flush_id <> '00000000-0000-0000-0000-000000000000';
alter table ops.seen add column since timestamptz not null default now();
create index seen_by_since on ops.seen (since) where flush_id = '00000000-0000-0000-0000-000000000000';
