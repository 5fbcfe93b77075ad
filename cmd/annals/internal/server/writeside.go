package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/usage/limiter"
)

// orphanTimeout is how long a sealed value may exist before its key does. A command takes far less.
const orphanTimeout = time.Hour

// preparationEvery is how often a running service looks for organizations whose creation was
// interrupted.
const preparationEvery = 10 * time.Second

// writeSide is the commands.
type writeSide struct {
	service *commands.Service
	// vault keeps the clear values of project keys. sealKeys seal them; the first one seals new
	// values.
	vault    secret.Vault
	sealKeys [][]byte
	access   access.Queries
	// preparation completes organizations while the service runs.
	preparation *preparation
	cfg         Config
}

func buildWrites(ctx context.Context, s *Server) (adds, error) {
	cfg, read := s.cfg, s.read
	keys, err := cfg.Data.OpenSealKeys(ctx, s.storage.db)
	if err != nil {
		return adds{}, err
	}
	sealer, err := secret.NewSealer(keys...)
	if err != nil {
		return adds{}, err
	}
	w := &writeSide{vault: secret.Vault{DB: s.storage.db, Sealer: sealer}, sealKeys: keys, access: read.access, cfg: cfg}
	w.preparation = &preparation{w.prepareOrganizations, preparationEvery, cfg.Logger}
	w.service = commands.New(commands.Config{
		Journal: s.journal, Waiter: read.waiter, FollowUps: read.waiter, Sends: read.dataPoints, DataPoints: read.dataPoints,
		Records: newSharedRecords(read.directory, cfg.Logger), Directory: read.directory,
		SoleWriter: cfg.EventStore == Embedded,
		HashKey:    s.hashKey, Pipeline: cfg.Derive, LoadGauge: s.load, Limits: read.limits, PlanTerms: cfg.PlanTerms,
		MemberLimits: cfg.MemberLimits,
		Events:       limiter.NewEvents(read.limits, cfg.Logger), Accounts: read.usage,
		Vault: w.vault, Preparing: read.access, Credentials: datafolder.Credentials{Dir: cfg.Data.Dir},
	})
	s.write = w
	return adds{}, nil
}

// buildAdministration makes what an operator's commands call, and completes organizations. It comes after the pipeline,
// which erases people and flushes what a backup holds.
func buildAdministration(_ context.Context, s *Server) (adds, error) {
	now, write := s.cfg.now, s.write
	people, tenancy := peopleOf(s), access.Tenancy{Queries: s.read.access, Head: s.head()}
	webhooks := access.Webhooks{Tenancy: tenancy, Vault: write.vault, URLs: s.urls}
	sends := datapoints.StoppedSends{Queries: s.read.dataPoints, Projects: s.read.access}
	a := adds{
		work: []task{{"preparation", write.preparation.run}},
		steps: []step{{"prepare organizations and vault", func(ctx context.Context) error {
			return errors.Join(write.preparation.prepare(ctx), write.reconcileVault(ctx))
		}}},
	}
	if b := s.background; b != nil {
		people = b.finisher.People
		s.backups = datafolder.Backup{
			Node: s.storage.node, Dir: s.cfg.Data.Dir, HashKey: s.hashKey, SealKeys: write.sealKeys, Flush: b.flushRecalls,
			SignIns: s.dumpSignIns,
		}
		a.operator = append(a.operator, operatorapi.BackupRoute(s.backups))
	}
	a.operator = slices.Concat(
		a.operator, operatorapi.SendRoutes(sends, write.service, now), operatorapi.DamageRoutes(s.read.dataPoints),
		operatorapi.OrganizationRoutes(write.service, now),
		operatorapi.TenancyRoutes(write.service, tenancy, now), operatorapi.PeopleRoutes(people, tenancy, now),
		operatorapi.WebhookRoutes(commands.Webhooks{Service: write.service, Finder: webhooks, URLs: s.urls}, webhooks, now),
	)
	return a, nil
}

// prepareOrganizations completes every organization whose creation was interrupted.
func (w *writeSide) prepareOrganizations(ctx context.Context) error {
	return w.service.PrepareOrganizations(ctx, commands.Call{
		Principal: auth.Principal{Kind: "preparation"}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: w.cfg.now(),
	})
}

// reconcileVault drops the values of keys that are not live, and stores the key of the credentials file, which was
// generated before the vault existed. The projection access must be at the head.
func (w *writeSide) reconcileVault(ctx context.Context) error {
	logger := w.cfg.Logger
	dropped, err := w.vault.Tidy(ctx, orphanTimeout, w.access.LiveKeys)
	if err != nil {
		return err
	}
	if dropped > 0 {
		logger.InfoContext(ctx, "values of keys that are not live dropped", "dropped", dropped)
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

// preparation completes organizations whose creation was interrupted.
type preparation struct {
	prepare func(context.Context) error
	every   time.Duration
	logger  *slog.Logger
}

func (p *preparation) run(ctx context.Context) error {
	for sleep(ctx, p.every) {
		if err := p.prepare(ctx); err != nil && ctx.Err() == nil {
			p.logger.WarnContext(ctx, "preparation of an organization failed, will retry", "err", err)
		}
	}
	return nil
}
