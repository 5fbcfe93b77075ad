package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/people"
	"github.com/annals-project/annals/commands/tenancy"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tenants"
	"github.com/annals-project/annals/projections/access"
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
) (journal *engine.Journal, hashKey []byte, err error) {
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
func join(ctx context.Context, cfg Config, st *storage) (*engine.Journal, []byte, error) {
	journal := engine.NewJournal(st.store, st.codec, cfg.Logger)
	for waiting := false; ; waiting = true {
		registered, err := tenancy.Registered(ctx, journal)
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
func bootstrap(ctx context.Context, cfg Config, st *storage, urls auth.URLs) (*engine.Journal, []byte, error) {
	journal := engine.NewJournal(st.store, st.codec, cfg.Logger)
	hashKey, err := cfg.Data.OpenHashKey(ctx, journal)
	if err != nil {
		return nil, nil, err
	}
	values, err := datafolder.ReadCredentials(cfg.Data.Dir)
	if err != nil {
		return nil, nil, err
	}
	registered, err := tenancy.Registered(ctx, journal)
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
	first := tenancy.FirstStart{Organization: "Annals", HashKey: hashKey, At: instantOf(time.Now)}
	if key := values[datafolder.ManagementKeyName]; key != "" {
		first.ManagementKey = secret.Describe(key)
	}
	if key := values[datafolder.ProjectKeyName]; key != "" {
		first.ProjectKey = secret.Describe(key)
	}
	if err := tenancy.Bootstrap(ctx, journal, first); err != nil {
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

// owners gives organizations their first person.
type owners struct {
	service *commands.Service
	tenancy access.Tenancy
	signIn  *signin.Service
	cfg     Config
	console string
}

// ensure makes the configured person the owner of each organization without one. A person who never signed in gets a
// generated password, which is on the disk in the credentials file before anything depends on it. So a crash at any
// point is continued by the next start.
func (o owners) ensure(ctx context.Context) error {
	email := o.cfg.SignIn.OwnerEmail
	if email == "" {
		return nil
	}
	list, err := o.tenancy.Organizations(ctx, "")
	if err != nil {
		return err
	}
	call := engine.Call{
		Principal: auth.Principal{Kind: "start"}, RequestID: uuid.Must(uuid.NewV7()), ReceivedAt: o.cfg.now(),
	}
	for _, org := range list {
		if isOwned(org) {
			continue
		}
		if err := o.writePassword(ctx, email); err != nil {
			return err
		}
		if err := o.own(ctx, call, org.ID, email); err != nil {
			return err
		}
		o.cfg.Logger.InfoContext(ctx, "an organization without an owner has one now", "organization", org.ID)
	}
	return o.finish(ctx)
}

func isOwned(o tenants.ListedOrganization) bool {
	return o.OwnerEmail != "" && o.OwnerEmail != person.RemovedName
}

// own makes the person with an address the owner of an organization, also one who is a member with another role.
func (o owners) own(ctx context.Context, call engine.Call, id uuid.UUID, email string) error {
	_, err := o.service.AddMember(ctx, call, id, people.NewMember{Email: email, Role: organization.Owner})
	if refused, is := errors.AsType[*fault.Error](err); !is || refused.Kind != fault.Conflict {
		return err
	}
	member, _, err := o.service.FindPerson(ctx, email)
	if err != nil {
		return err
	}
	return o.service.SetMemberRole(ctx, call, id, member, organization.Owner)
}

// stateOf returns how the person with an address signs in. known is false for who never could.
func (o owners) stateOf(ctx context.Context, email string) (id uuid.UUID, state signin.State, known bool, err error) {
	id, found, err := o.service.FindPerson(ctx, email)
	if err != nil || !found {
		return uuid.Nil, signin.State{}, false, err
	}
	states, err := o.signIn.States(ctx, id)
	state, known = states[id]
	return id, state, known, err
}

// writePassword writes a password for a person who never signed in to the credentials file, unless it has one.
func (o owners) writePassword(ctx context.Context, email string) error {
	values, err := datafolder.ReadCredentials(o.cfg.Data.Dir)
	if err != nil || values[datafolder.OwnerEmailName] == email && values[datafolder.OwnerPasswordName] != "" {
		return err
	}
	if _, _, known, err := o.stateOf(ctx, email); err != nil || known {
		return err
	}
	values[datafolder.OwnerEmailName], values[datafolder.OwnerPasswordName] = email, rand.Text()
	return datafolder.WriteCredentials(o.cfg.Data.Dir, values)
}

// finish gives the person of the credentials file the password in it, and takes it out of the file once it has ended.
// It shows the link by which somebody takes the account over.
func (o owners) finish(ctx context.Context) error {
	values, err := datafolder.ReadCredentials(o.cfg.Data.Dir)
	email, password := values[datafolder.OwnerEmailName], values[datafolder.OwnerPasswordName]
	if err != nil || password == "" {
		return err
	}
	id, state, known, err := o.stateOf(ctx, email)
	if err != nil || id == uuid.Nil {
		return err
	}
	if !known {
		if state.Generated, err = o.signIn.GeneratePassword(ctx, id, email, password); err != nil {
			return err
		}
	}
	if !state.Generated {
		delete(values, datafolder.OwnerEmailName)
		delete(values, datafolder.OwnerPasswordName)
		return datafolder.WriteCredentials(o.cfg.Data.Dir, values)
	}
	if o.cfg.SignIn.ShowLink == nil {
		return nil
	}
	link, err := o.newLink(ctx, id, email)
	if err == nil {
		o.cfg.SignIn.ShowLink(link)
	}
	return err
}

func (o owners) newLink(ctx context.Context, id uuid.UUID, email string) (string, error) {
	token, err := o.signIn.NewLink(ctx, signin.Link{Purpose: signin.Owner, Person: id, Email: email})
	return o.console + "/link/" + token, err
}

// link makes a one-time link for a person, as the operator's command asks for it. Somebody who is a member of nothing
// becomes the owner of an organization without one.
func (o owners) link(
	ctx context.Context, call engine.Call, in operatorapi.PersonLinkRequest,
) (out operatorapi.PersonLink, err error) {
	id, found, err := o.service.FindPerson(ctx, in.Email)
	if err == nil && found {
		found, err = o.signIn.IsMember(ctx, id)
	}
	if err != nil {
		return out, err
	}
	if !found {
		org, err := o.tenancy.Organization(ctx, in.Organization)
		if err != nil {
			return out, err
		}
		if isOwned(org) {
			return out, fault.New(fault.NotFound, fault.CodeNotFound,
				"nobody with this address is a member, and organization %q has an owner, who can invite people", org.Name)
		}
		if err := o.own(ctx, call, org.ID, in.Email); err != nil {
			return out, err
		}
		if id, _, err = o.service.FindPerson(ctx, in.Email); err != nil {
			return out, err
		}
	}
	out.Link, err = o.newLink(ctx, id, in.Email)
	out.ExpiresAt = o.cfg.now().Add(o.signIn.LinkLife)
	return out, err
}

// buildSealKeys has the start seal everything with the first seal key. It comes after what restores sealed values.
func buildSealKeys(_ context.Context, s *Server) (adds, error) {
	return adds{steps: []step{{"seal with the first seal key", s.reseal}}}, nil
}

// reseal seals all values with the first seal key, the check value last, so that the others can be retired.
func (s *Server) reseal(ctx context.Context) error {
	sealer, logger := s.write.vault.Sealer, s.cfg.Logger
	for _, t := range datafolder.SealedTables() {
		done, unopened, err := t.Reseal(ctx, s.storage.db, sealer)
		if err != nil {
			return err
		}
		if done > 0 {
			logger.InfoContext(ctx, "values sealed with the first seal key", "values", t.Values, "sealed", done)
		}
		if unopened > 0 {
			logger.WarnContext(ctx, "values cannot be opened: their seal key is not in ANNALS_SEAL_KEY", "values", t.Values,
				"unopened", unopened)
		}
	}
	return secret.WriteCheck(ctx, s.storage.db, sealer)
}
