package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
)

const (
	// joinRetry is the pause between two tries to open the log.
	joinRetry = 500 * time.Millisecond
	// openTries bounds how often the log is opened while the event store does not answer. Each try also
	// waits for the event store as long as one read does.
	openTries = int(startWait / joinRetry)
)

// openJournal opens or fills the log, and returns it with its hash key. An event store that is
// unreachable during the start gets some time to return.
func openJournal(
	ctx context.Context, cfg Config, st *storage, urls auth.URLs,
) (journal *commands.Journal, hashKey []byte, err error) {
	err = retryUnavailable(ctx, cfg.Logger, func() (err error) {
		if cfg.Roles.Has(RoleWrite) {
			journal, hashKey, err = bootstrap(ctx, cfg, st, urls)
		} else {
			journal, hashKey, err = join(ctx, cfg, st)
		}
		return err
	})
	return journal, hashKey, err
}

// retryUnavailable opens the log until the event store responds, at most openTries times.
func retryUnavailable(ctx context.Context, logger *slog.Logger, open func() error) error {
	for try := 1; ; try++ {
		err := open()
		refused, is := errors.AsType[*fault.Error](err)
		if !is || refused.Kind != fault.Unavailable || try == openTries {
			return err
		}
		logger.WarnContext(ctx, "log not opened, will retry", "err", err)
		if !sleep(ctx, joinRetry) {
			return err
		}
	}
}

// join waits until a process with role write has filled the log, then returns it with its hash key.
func join(ctx context.Context, cfg Config, st *storage) (*commands.Journal, []byte, error) {
	journal := commands.NewJournal(st.store, st.codec, cfg.Logger)
	for waiting := false; ; waiting = true {
		registered, err := commands.Registered(ctx, journal)
		if err != nil {
			return nil, nil, fmt.Errorf("read the registry: %w", err)
		}
		if registered {
			break
		}
		if !waiting {
			cfg.Logger.InfoContext(ctx, "the log is empty, waiting for a process with role write to open it")
		}
		if !sleep(ctx, joinRetry) {
			return nil, nil, errors.New("the log is empty: start a process with role write, which opens it")
		}
	}
	if err := cfg.Data.UseHashKey(ctx, journal); err != nil {
		return nil, nil, err
	}
	hashKey, err := cfg.Data.ReadHashKey()
	return journal, hashKey, err
}

// bootstrap makes the log ready and returns it with its hash key. An empty log gets its
// organization, project and keys. The keys are written to the data folder before the first
// append, so a crash never leaves a log whose keys are lost.
func bootstrap(ctx context.Context, cfg Config, st *storage, urls auth.URLs) (*commands.Journal, []byte, error) {
	journal := commands.NewJournal(st.store, st.codec, cfg.Logger)
	hashKey, err := cfg.Data.OpenHashKey(ctx, journal)
	if err != nil {
		return nil, nil, err
	}
	values, err := datafolder.ReadCredentials(cfg.Data.Dir)
	if err != nil {
		return nil, nil, err
	}
	registered, err := commands.Registered(ctx, journal)
	if err != nil {
		return nil, nil, fmt.Errorf("read the registry: %w", err)
	}
	if !registered {
		if err := generateKeys(values); err != nil {
			return nil, nil, err
		}
	}
	if len(values) > 0 {
		values["ANNALS_API_URL"], values["ANNALS_CONSOLE_URL"], values["ANNALS_AUTH_URL"] = urls.API, urls.Console, urls.Auth
		if err := datafolder.WriteCredentials(cfg.Data.Dir, values); err != nil {
			return nil, nil, err
		}
	}
	first := commands.FirstStart{Organization: "Annals", HashKey: hashKey, At: instantOf(time.Now)}
	if key := values[datafolder.ManagementKeyName]; key != "" {
		first.ManagementKey = secret.Describe(key)
	}
	if key := values[datafolder.ProjectKeyName]; key != "" {
		first.ProjectKey = secret.Describe(key)
	}
	if err := commands.Bootstrap(ctx, journal, first); err != nil {
		return nil, nil, cfg.Data.ExplainHashKey(err)
	}
	journal.Namespaces = stream.NewNamespaces(hashKey)
	return journal, hashKey, nil
}

// generateKeys generates the keys that are missing. A key that an interrupted start wrote is
// reused.
func generateKeys(values map[string]string) error {
	for name, generate := range map[string]func() (secret.Key, error){
		datafolder.ProjectKeyName: secret.NewProjectKey, datafolder.ManagementKeyName: secret.NewManagementKey,
	} {
		if values[name] != "" {
			continue
		}
		key, err := generate()
		if err != nil {
			return err
		}
		values[name] = key.Clear
	}
	return nil
}
