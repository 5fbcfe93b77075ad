-- +goose Up
-- Bodies of plans with a shorter retention than others are deleted by their time. They are written in
-- the order of time, so that a block range index, which costs writers next to nothing, finds them.
create index request_payloads_by_time on ops.request_payloads using brin (received_at) with (pages_per_range = 16);
