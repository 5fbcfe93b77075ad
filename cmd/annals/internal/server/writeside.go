package server

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/usage"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// orphanTimeout is how long a sealed value may exist before its key does. A command takes far less.
const orphanTimeout = time.Hour

// writeSide is the commands.
type writeSide struct {
	service *commands.Service
	// vault keeps the clear values of project keys. sealKeys seal them; the first one seals new
	// values.
	vault    secret.Vault
	sealKeys [][]byte
	access   access.Queries
	cfg      Config
}

func newWriteSide(
	cfg Config, st *storage, journal *commands.Journal, read *readSide, load *commands.LoadGauge, hashKey []byte,
) (*writeSide, error) {
	keys, err := cfg.Data.SealKeys()
	if err != nil {
		return nil, err
	}
	sealer, err := secret.NewSealer(keys...)
	if err != nil {
		return nil, err
	}
	w := &writeSide{vault: secret.Vault{DB: st.db, Sealer: sealer}, sealKeys: keys, access: read.access, cfg: cfg}
	limits := limiter.New(st.db, cfg.PlanTerms, read.waiter, cfg.Logger)
	w.service = commands.New(commands.Config{
		Journal: journal, Waiter: read.waiter, FollowUps: read.waiter, Sends: read.dataPoints, DataPoints: read.dataPoints,
		Records: read.directory, Directory: read.directory, SoleWriter: cfg.EventStore == Embedded,
		HashKey: hashKey, Pipeline: cfg.Derive, LoadGauge: load, Limits: limits, PlanTerms: cfg.PlanTerms,
		Events: limiter.NewEvents(limits, cfg.Logger), Accounts: usage.Queries{DB: st.db, PlanTerms: cfg.PlanTerms},
		Vault: w.vault, Preparing: read.access, Credentials: datafolder.Credentials{Dir: cfg.Data.Dir},
	})
	return w, nil
}

// prepareOrganizations completes every organization whose creation was interrupted.
func (w *writeSide) prepareOrganizations(ctx context.Context) error {
	return w.service.PrepareOrganizations(ctx, commands.Call{
		Principal: auth.Principal{Kind: "preparation"}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: w.cfg.now(),
	})
}

// reconcileVault seals all values with the first key, drops the values of keys that are not live,
// and stores the key of the credentials file, which was generated before the vault existed. The
// projection access must be at the head.
func (w *writeSide) reconcileVault(ctx context.Context) error {
	logger := w.cfg.Logger
	done, unopened, err := w.vault.Reseal(ctx)
	if err != nil {
		return err
	}
	if unopened > 0 {
		logger.WarnContext(ctx, "api keys cannot be revealed: their seal key is not in ANNALS_SEAL_KEY", "keys", unopened)
	}
	dropped, err := w.vault.Tidy(ctx, orphanTimeout, w.access.LiveKeys)
	if err != nil {
		return err
	}
	if done+dropped > 0 {
		logger.InfoContext(ctx, "api keys resealed", "sealed", done, "dropped", dropped)
	}
	values, err := datafolder.ReadCredentials(w.cfg.Data.Dir)
	if err != nil || values[datafolder.ProjectKeyName] == "" {
		return err
	}
	clear := values[datafolder.ProjectKeyName]
	holder, ok, err := w.access.KeyByHash(ctx, auth.ProjectKey, secret.Hash(clear))
	if err != nil || !ok {
		return err
	}
	return w.vault.Keep(ctx, holder.KeyID, clear)
}
