-- The embedding model whose vectors recall compares. While those of another model are made, this is the one before.
create table ops.embedding_model (
	single      boolean primary key default true check (single),
	name        text not null,
	switched_at timestamptz not null default now()
);
alter table ops.embedding_model alter name set statistics 0;
