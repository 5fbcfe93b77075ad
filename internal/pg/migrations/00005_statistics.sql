-- +goose Up
-- No statistics of sealed keys: Postgres would keep whole values there, also of keys that are gone. Setting the type of a column
-- removes the statistics that it has.
alter table ops.sealed_keys alter sealed set statistics 0, alter sealed type bytea;
