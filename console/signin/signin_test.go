package signin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	anasMail = "ana@acme.example"
	anas     = "correct horse battery"
	home     = "192.0.2.1"
	away     = "198.51.100.7"
)

// scene is a service with a clock, and a person Ana who is a member.
type scene struct {
	*Service
	t      *testing.T
	clock  time.Time
	people map[string]uuid.UUID
	ana    uuid.UUID
	paused []time.Duration
	guests map[uuid.UUID]bool // who are members of nothing
	gone   []uuid.UUID        // who are removed
	// elsewhere are members of some other organization, offered are addresses with an offer.
	elsewhere map[uuid.UUID]bool
	offered   map[string]bool
}

func newScene(t *testing.T, change ...func(*Config)) *scene {
	t.Helper()
	sealer, err := secret.NewSealer([]byte(strings.Repeat("k", secret.SealKeyBytes)))
	runtest.Must(t, err)
	s := &scene{
		t: t, clock: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), ana: uuid.New(),
		people: map[string]uuid.UUID{}, guests: map[uuid.UUID]bool{}, elsewhere: map[uuid.UUID]bool{},
		offered: map[string]bool{},
	}
	s.people[anasMail] = s.ana
	c := Config{
		DB: pgtest.Database(t), People: s, Sealer: sealer, HashKey: []byte("hash key"),
		Now:             func() time.Time { return s.clock },
		IsMember:        func(_ context.Context, id uuid.UUID) (bool, error) { return !s.guests[id], nil },
		MemberElsewhere: func(_ context.Context, id, _ uuid.UUID) (bool, error) { return s.elsewhere[id], nil },
		Offered:         func(_ context.Context, email string) (bool, error) { return s.offered[email], nil },
	}
	c.Removed = func(context.Context, []uuid.UUID) ([]uuid.UUID, error) { return s.gone, nil }
	for _, f := range change {
		f(&c)
	}
	s.Service = New(c)
	s.pause = func(_ context.Context, d time.Duration) error {
		s.paused = append(s.paused, d)
		return nil
	}
	return s
}

// FindPerson implements People.
func (s *scene) FindPerson(_ context.Context, email string) (uuid.UUID, bool, error) {
	for _, form := range person.Forms(email) {
		if id, found := s.people[form]; found {
			return id, true, nil
		}
	}
	return uuid.Nil, false, nil
}

// Register implements People. The person is a member of nothing.
func (s *scene) Register(ctx context.Context, email string) (uuid.UUID, error) {
	id, found, err := s.FindPerson(ctx, email)
	if !found {
		id = uuid.New()
		s.people[person.NormalEmail(email)], s.guests[id] = id, true
	}
	return id, err
}

// AddressOf implements People.
func (s *scene) AddressOf(_ context.Context, id uuid.UUID) (string, bool, error) {
	for email, of := range s.people {
		if of == id {
			return email, true, nil
		}
	}
	return "", false, nil
}

func (s *scene) pass(d time.Duration) { s.clock = s.clock.Add(d) }

// session begins a session of a person in the place of a former one.
func (s *scene) session(id uuid.UUID, former string) string {
	s.t.Helper()
	var in SignedIn
	runtest.Must(s.t, pgx.BeginFunc(s.t.Context(), s.DB, func(tx pgx.Tx) (err error) {
		in, err = s.begin(s.t.Context(), tx, Client{Browser: "Firefox", Address: home}, former, SignedIn{Person: id}, false)
		return err
	}))
	return in.Token
}

// find returns the session of a token, nil for none.
func (s *scene) find(token string) *Session {
	s.t.Helper()
	found, ok, err := s.Session(s.t.Context(), token)
	runtest.Must(s.t, err)
	if !ok {
		return nil
	}
	return &found
}

// A verification that was stored under the former form of an address counts for that address, and for no other.
func TestVerified_FormerForm(t *testing.T) {
	s := newScene(t).password()
	const kelvin, kim = "\u212aim@acme.example", "kim@acme.example"
	verified := func(email string) bool {
		states, err := s.States(t.Context(), s.ana)
		runtest.Must(t, err)
		session := s.find(s.session(s.ana, ""))
		if is := s.Verified(states[s.ana], email); is == s.Opens(*session, email, uuid.New()) {
			return is
		}
		t.Errorf("a session does not open what %q is verified for", email)
		return false
	}
	store := func(name []byte) {
		_, err := s.DB.Exec(t.Context(), `update ops.signin_proofs set address = $2 where person_id = $1`, s.ana, name)
		runtest.Must(t, err)
	}
	store(s.keyed("address", kim))
	if !verified(kelvin) || !verified(kim) || verified("tim@acme.example") {
		t.Error("what was stored under the former form is not found")
	}
	store(s.addressName(kelvin))
	if !verified(kelvin) || verified(kim) {
		t.Error("a Kelvin sign counts as a k")
	}
}

// Who was stored under the former form of the address signs in by it, in any case of the letters of ASCII.
func TestSignIn_FormerForm(t *testing.T) {
	s := newScene(t).password()
	s.people = map[string]uuid.UUID{"m\u00e4rta@acme.example": s.ana}
	for _, email := range []string{"M\u00c4RTA@acme.example", "m\u00c4rta@ACME.example"} {
		if in := s.enters(email, anas, home, nil); in.Person != s.ana {
			t.Errorf("%q signs %s in", email, in.Person)
		}
	}
	s.enters("\u212aim@acme.example", anas, home, ErrRefused)
}
