-- +goose Up
-- Events that webhooks received are counted beside recalls, on their way into the same streams.
alter table ops.charges add column webhook_events bigint not null default 0;
alter table ops.charges add column webhook_tenths bigint not null default 0;
