package server

import (
	"context"
	"errors"
	"log/slog"

	"github.com/annals-project/annals/cmd/annals/internal/probe"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/projections/recallindex/elastic"
)

// CheckLog returns an error unless the event store of a configuration answers, and its log is empty or written with the
// hash key. It writes nothing.
func CheckLog(ctx context.Context, cfg Config) (err error) {
	store, err := openStore(cfg.EventStore)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	codec, err := eventstore.NewCodec(domain.Catalog)
	if err != nil {
		return err
	}
	key, err := cfg.Data.ReadHashKey()
	if err != nil {
		return err
	}
	log := &commands.Journal{Journal: eventstore.Journal{Store: store, Codec: codec}}
	return cfg.Data.ExplainHashKey(commands.CheckHashKey(ctx, log, key))
}

// Probes returns the probes of the servers that a service with a configuration would call in the background.
func Probes(cfg Config) ([]*probe.Server, error) {
	cfg.Logger = slog.New(slog.DiscardHandler)
	p := &probes{}
	cfg = p.observed(cfg)
	if cfg.Index != nil {
		p.index = newIndexProbe(cfg, func(ctx context.Context) error { return elastic.Check(ctx, *cfg.Index) })
	}
	return p.all(), p.open(cfg, &storage{})
}
