// Package signin is how people sign in: passwords, second factors, accounts at an OpenID Connect provider, one-time
// links, and the sessions that begin with them.
//
// It keeps no address: people are found by a command, and their names are in the log. It knows no pages; tokens and
// cookies are strings here. What it stores of a token is a hash.
package signin

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/sealedtables"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/statement"
	"github.com/annals-project/annals/internal/visits"
)

// What a person did wrong, in words for that person.
var (
	// ErrRefused does not tell which of the two is wrong.
	ErrRefused  = errors.New("the address or the password is wrong")
	ErrCode     = errors.New("the code is wrong, was used before, or came too late")
	ErrEnrolled = errors.New("there is a second factor already: remove it first")
	ErrLink     = errors.New("the link was used, or has expired")
	ErrUnneeded = errors.New("you have an account already: sign in, and accept the offer on the page \"Offers\". If you " +
		"cannot, use \"Forgot your password?\" on the page to sign in, or ask who operates this service for a link")
	ErrElsewhere = errors.New("this link sets no password any more, since you are a member of another organization: use " +
		"\"Forgot your password?\" on the page to sign in, or ask who operates this service for a link")
	ErrUnproved = errors.New("set a password with this link")
	ErrKnown    = errors.New("you are a member already: sign in, or ask an Admin for a link to set a password")
	// ErrGuessable is the fault of a new password alone.
	ErrGuessable = errors.New("this password is guessed early: it is a common one, a repetition or a row of keys. " +
		"Take several words that do not belong together")
	ErrPassword = fmt.Errorf("a password has %d to %d characters", MinPassword, MaxPassword)
)

// ThrottledError means that somebody failed too often.
type ThrottledError struct {
	// Retry is the time after which another attempt is looked at.
	Retry time.Duration
}

// Error implements error.
func (e *ThrottledError) Error() string { return "too many attempts: wait and try again" }

// Config is what a Service needs. A limit of zero is the one that is named with it.
type Config struct {
	DB *pgxpool.Pool
	// People finds people by their address, and registers who has an offer.
	People interface {
		FindPerson(ctx context.Context, email string) (id uuid.UUID, found bool, err error)
		Register(ctx context.Context, email string) (uuid.UUID, error)
		AddressOf(ctx context.Context, person uuid.UUID) (email string, found bool, err error)
	}
	// IsMember reports whether a person is a member of an organization, MemberElsewhere whether of another one than that.
	IsMember        func(ctx context.Context, person uuid.UUID) (bool, error)
	MemberElsewhere func(ctx context.Context, person, organization uuid.UUID) (bool, error)
	// Offered reports whether an organization offers a membership to an address.
	Offered func(ctx context.Context, email string) (bool, error)
	// Removed returns those of some people who are certainly removed.
	Removed func(ctx context.Context, people []uuid.UUID) ([]uuid.UUID, error)
	// Refused is called for each refused sign-in with a password or a code; nil for nothing.
	Refused func(ctx context.Context, c Client, why Refusal)
	// Grants end when the password is reset, and with a sign-out everywhere; nil for none.
	Grants  Grants
	Sealer  *secret.Sealer
	HashKey []byte
	Now     func() time.Time // nil: time.Now
	// Issuer names the instance in an authenticator app: Annals.
	Issuer string
	// OIDC is the provider, zero for none.
	OIDC Provider

	Idle    time.Duration // after which an unused session ends: 12 hours
	Longest time.Duration // after which every session ends: 30 days
	// LinkLife is how long links of owners, resets and verifications work: an hour. InviteLife: 7 days.
	LinkLife, InviteLife time.Duration
	// Hashes is how many passwords of people who are not signed in are hashed at once, each in 19 MiB: 3. KnownHashes is
	// how many of sessions and of known browsers: 2. HashWait is how long a hash waits for a slot: 5 seconds.
	Hashes, KnownHashes int
	HashWait            time.Duration
	// HashMemory is the KiB in which a new password is hashed: 19 MiB. Less is for tests.
	HashMemory uint32
	// Window is the time in which failures are counted: 15 minutes. AddressFailures of one network address are refused
	// in it (50), those of one network address at one account (10), and those at one second factor (10). Once an account
	// has AccountFailures (30) from wherever, its attempts are looked at one by one, AccountDelay (2 s) each. A known
	// browser counts by itself: after PairFailures it counts as a stranger.
	Window                                                               time.Duration
	AddressFailures, PairFailures, SecondFactorFailures, AccountFailures int
	AccountDelay                                                         time.Duration
	// FailureTime is the least time that a refusal takes, so that it does not tell who is known: 300 ms.
	FailureTime time.Duration
}

// Service signs people in.
type Service struct {
	Config
	slots    hashSlots
	accounts lanes
	provider atomic.Pointer[oidc.Provider]
	pause    func(context.Context, time.Duration) error
}

// New makes a service.
func New(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Grants == nil {
		c.Grants = NoGrants{}
	}
	c.Issuer = cmp.Or(c.Issuer, "Annals")
	c.Idle, c.Longest = cmp.Or(c.Idle, 12*time.Hour), cmp.Or(c.Longest, 30*24*time.Hour)
	c.LinkLife, c.InviteLife = cmp.Or(c.LinkLife, time.Hour), cmp.Or(c.InviteLife, 7*24*time.Hour)
	c.HashMemory = cmp.Or(c.HashMemory, hashMemory)
	c.Hashes, c.KnownHashes = cmp.Or(c.Hashes, 3), cmp.Or(c.KnownHashes, 2)
	c.HashWait, c.Window = cmp.Or(c.HashWait, 5*time.Second), cmp.Or(c.Window, 15*time.Minute)
	c.AddressFailures, c.PairFailures = cmp.Or(c.AddressFailures, 50), cmp.Or(c.PairFailures, 10)
	c.SecondFactorFailures, c.AccountFailures = cmp.Or(c.SecondFactorFailures, 10), cmp.Or(c.AccountFailures, 30)
	c.AccountDelay, c.FailureTime = cmp.Or(c.AccountDelay, 2*time.Second), cmp.Or(c.FailureTime, 300*time.Millisecond)
	return &Service{
		Config: c, slots: newHashSlots(c.Hashes, c.KnownHashes, c.HashWait), pause: pause,
	}
}

// pause waits for a time, or fails when the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// now is the time at the precision of the tables.
func (s *Service) now() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

// random returns random bytes.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}

// tokenBytes is how many random bytes a token has.
const tokenBytes = 32

// newToken returns a random token as text.
func newToken() string { return base64.RawURLEncoding.EncodeToString(random(tokenBytes)) }

// hashToken is what is stored of a token.
func hashToken(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// keyed returns a keyed hash of a value of a kind.
func (s *Service) keyed(kind, value string) []byte {
	mac := hmac.New(sha256.New, s.HashKey)
	mac.Write([]byte("sign-in " + kind + "\x00" + value))
	return mac.Sum(nil)
}

// addressName is what is stored of a proved address.
func (s *Service) addressName(email string) []byte {
	return s.keyed("address", person.NormalEmail(email))
}

// addressNames are the names under which a proved address may be stored.
func (s *Service) addressNames(email string) (names [][]byte) {
	for _, form := range person.Forms(email) {
		names = append(names, s.keyed("address", form))
	}
	return names
}

// querier is the pool, or a transaction.
type querier interface {
	statement.Querier

	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// forget deletes the rows of a person in some tables, in one transaction.
func forget(ctx context.Context, on querier, person uuid.UUID, tables ...string) error {
	b := &pgx.Batch{}
	for _, table := range tables {
		b.Queue(`delete from `+table+` where person_id = $1`, person)
	}
	return statement.Failed("forget a person", on.SendBatch(ctx, b).Close())
}

// Tables are those that a backup holds, in the order in which they are restored. Sessions, known
// browsers, links and failures are not among them: a restore ends them.
func Tables() []sealedtables.Table {
	return []sealedtables.Table{
		{Key: "people", Name: "ops.signin_people"},
		{Key: "proofs", Name: "ops.signin_proofs"},
		{Key: "codes", Name: "ops.signin_recovery_codes"},
		{Key: "accounts", Name: "ops.signin_accounts"},
	}
}

// SealedTables are the tables whose rows hold sealed values.
func SealedTables() []secret.Table {
	return []secret.Table{
		{
			Name: "ops.signin_people", Values: "second factors",
			Lost: "their people sign in with a recovery code, or after an Admin reset the second factor",
			ID:   "person_id", Key: "totp_key", Data: "totp",
		},
		{
			Name: "ops.signin_links", Values: "open links", Lost: "they no longer work: make new ones",
			ID: "encode(substr(token, 1, 16), 'hex')::uuid", Key: "payload_key", Data: "payload",
		},
	}
}

// tidySlice is how many rows a statement of Tidy deletes.
const tidySlice = 1000

// Tidy deletes what has expired, and all of people who are removed, in slices. The service runs it every few minutes.
func (s *Service) Tidy(ctx context.Context) error {
	for _, ended := range []struct {
		table, key, column string
		before             time.Time
	}{
		{"ops.signin_sessions", "id", "expires_at", s.now()},
		{"ops.signin_sessions", "id", "used_at", s.now().Add(-s.Idle)},
		{"ops.signin_browsers", "token", "used_at", s.now().Add(-KnownLife)},
		{"ops.signin_links", "token", "expires_at", s.now()},
		{"ops.signin_attempts", "id", "expires_at", s.now()},
		{"ops.signin_failures", "who", "until", s.now()},
	} {
		for done := int64(tidySlice); done == tidySlice; {
			var err error
			if done, err = statement.Exec(ctx, s.DB, `delete from `+ended.table+` where `+ended.key+` in (select `+ended.key+` from `+
				ended.table+` where `+ended.column+` <= $1 limit $2)`, ended.before, tidySlice); err != nil {
				return err
			}
		}
	}
	return s.endRemoved(ctx)
}

func (s *Service) endRemoved(ctx context.Context) error {
	return statement.EachPage(ctx, s.DB, tidySlice, `select person_id from ops.signin_people where person_id > $1
		union select person_id from ops.signin_links where person_id > $1 order by 1 limit $2`, func(people []uuid.UUID) error {
		removed, err := s.Removed(ctx, people)
		for _, id := range removed {
			err = errors.Join(err, s.EndPerson(ctx, id))
		}
		return err
	})
}

// EndPerson deletes all of a person: the sessions at once. It may be repeated.
func (s *Service) EndPerson(ctx context.Context, person uuid.UUID) error {
	err := forget(ctx, s.DB, person, "ops.signin_sessions", "ops.signin_browsers", "ops.signin_links",
		"ops.signin_recovery_codes", "ops.signin_accounts", "ops.signin_proofs", "ops.signin_people")
	return errors.Join(err, visits.Queue{DB: s.DB}.Forget(ctx, person))
}
