package signin

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/sealedtables"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/visits"
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

// visited takes the visits that are due a window from now.
func (s *scene) visited() (list []visits.Entry) {
	s.t.Helper()
	codec, err := eventstore.NewCodec(domain.Catalog)
	runtest.Must(s.t, err)
	q := visits.Queue{DB: s.DB, Decode: func(name string, payload []byte) (event.Event, error) {
		return codec.Decode(eventstore.Recorded{Type: name, Data: payload})
	}}
	for {
		found, err := q.Take(s.t.Context(), s.clock.Add(visit.RefusedTime), func(_ context.Context, e visits.Entry) error {
			list = append(list, e)
			return nil
		})
		runtest.Must(s.t, err)
		if !found {
			return list
		}
	}
}

// A sign-in is recorded with how and where from, and a refused one for the person whose address it names alone.
func TestVisits_OfSignIns(t *testing.T) {
	var why []Refusal
	s := newScene(t, func(c *Config) {
		c.Refused = func(_ context.Context, _ Client, refusal Refusal) { why = append(why, refusal) }
	})
	s.password()
	s.visited()
	for range 3 {
		s.enters(anasMail, "wrong password", away, ErrRefused)
	}
	s.enters("nobody@acme.example", anas, away, ErrRefused)
	request := uuid.New()
	_, err := s.SignIn(t.Context(), Attempt{Email: anasMail, Password: anas, Client: Client{
		Browser: "Firefox", Address: home, Request: request,
	}})
	runtest.Must(t, err)
	list := s.visited()
	of := func(address string) visit.Visit { return visit.Visit{Network: address, Browser: "Firefox"} }
	want := []visits.Entry{
		{
			Person: s.ana, Principal: "person:" + s.ana.String(), RequestID: request, At: s.clock, LastAt: s.clock, Attempts: 1,
			Event: &visit.SignedIn{Visit: of(home), Way: visit.Password},
		},
		{
			Person: s.ana, Principal: "sign-in", At: s.clock, LastAt: s.clock, Attempts: 3,
			Event: &visit.SignInRefused{Visit: of(away)},
		},
	}
	for i := range list {
		list[i].ID = uuid.Nil
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
	if want := []Refusal{Wrong, Wrong, Wrong, NobodyHas}; !slices.Equal(why, want) {
		t.Errorf("refusals %v, want %v", why, want)
	}
}

// However many addresses and how often a stranger tries, each person has one entry for a window, and others none.
func TestVisits_StrangersAddOneForEachPerson(t *testing.T) {
	s := newScene(t)
	s.password()
	s.visited()
	s.clock = s.clock.Truncate(visit.RefusedTime)
	tries := 0
	for i := range 40 {
		from := "203.0.113." + string(rune('0'+i%10))
		for _, email := range []string{anasMail, "nobody@acme.example"} {
			_, err := s.SignIn(t.Context(), Attempt{Email: email, Password: "wrong password", Client: Client{Address: from}})
			_, throttled := errors.AsType[*ThrottledError](err)
			if !throttled && !errors.Is(err, ErrRefused) {
				t.Fatal(err)
			}
			if !throttled && email == anasMail {
				tries++
			}
		}
		s.clock = s.clock.Add(time.Second)
	}
	list := s.visited()
	if len(list) != 1 || list[0].Attempts != tries || tries == 0 {
		t.Errorf("after %d attempts that were looked at: %+v", tries, list)
	}
}

// A code of the second factor ends the sign-in, and a wrong one is refused. What is left of a person is forgotten.
func TestVisits_OfSecondFactors(t *testing.T) {
	s := newScene(t)
	e, _ := s.enrolled()
	s.visited()
	in := s.enters(anasMail, anas, home, nil)
	if list := s.visited(); len(list) > 0 {
		t.Errorf("a session that waits is a visit: %+v", list)
	}
	if _, err := s.SecondFactor(t.Context(), in.Token, "000000", Client{Address: away}); !errors.Is(err, ErrCode) {
		t.Fatal(err)
	}
	if _, err := s.SecondFactor(t.Context(), in.Token, s.code(e), Client{Address: home}); err != nil {
		t.Fatal(err)
	}
	list := s.visited()
	if len(list) != 2 {
		t.Fatalf("visits %+v", list)
	}
	in1, is := list[0].Event.(*visit.SignedIn)
	if _, refused := list[1].Event.(*visit.SignInRefused); !is || !refused || in1.Way != visit.Code || !in1.SecondFactor {
		t.Errorf("visits %+v", list)
	}
	s.enters(anasMail, "wrong password", home, ErrRefused)
	runtest.Must(t, s.EndPerson(t.Context(), s.ana))
	if list := s.visited(); len(list) > 0 {
		t.Errorf("of an ended person %+v", list)
	}
}

// A link for a person is recorded when an operator makes it, and each when it is used.
func TestVisits_OfLinks(t *testing.T) {
	s := newScene(t)
	token, err := s.NewLink(t.Context(), Link{Purpose: Owner, Person: s.ana, Email: anasMail})
	runtest.Must(t, err)
	_, err = s.SetPassword(t.Context(), token, Attempt{Password: anas, Client: Client{Address: home}})
	runtest.Must(t, err)
	var names []string
	for _, e := range s.visited() {
		names = append(names, e.Event.EventType()+" "+e.Principal)
	}
	person := "person:" + s.ana.String()
	want := []string{"visit.link-made.v1 operator", "visit.link-used.v1 " + person, "visit.signed-in.v1 " + person}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestBackup_RestoresHowPeopleSignIn(t *testing.T) {
	s := newScene(t)
	e, codes := s.enrolled()
	for range 399 { // full pages
		_, err := s.SetZone(t.Context(), uuid.New(), "Europe/Vienna")
		runtest.Must(t, err)
	}
	_, err := s.DB.Exec(t.Context(), `insert into ops.signin_accounts values ('https://idp.example', 'ana', $1)`, s.ana)
	runtest.Must(t, err)
	s.session(s.ana, "")
	var dump bytes.Buffer
	runtest.Must(t, sealedtables.Dump(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	if n := strings.Count(dump.String(), "\n"); n != 5 || strings.Contains(dump.String(), "argon2id") {
		t.Fatalf("%d lines", n)
	}

	next := newScene(t)
	next.ana, next.people, next.clock = s.ana, s.people, s.clock
	damaged := strings.SplitAfter(dump.String(), "\n")
	for _, text := range []string{damaged[1] + damaged[0], damaged[0] + "x." + damaged[1], damaged[0][:len(damaged[0])/2]} {
		if err := sealedtables.Load(t.Context(), next.DB, next.Sealer, strings.NewReader(text), Tables()...); err == nil {
			t.Error("a damaged backup is restored")
		}
	}
	for range 2 {
		runtest.Must(t, sealedtables.Load(t.Context(), next.DB, next.Sealer, bytes.NewReader(dump.Bytes()), Tables()...))
	}
	var people, sessions, accounts int
	runtest.Must(t, next.DB.QueryRow(t.Context(), `select (select count(*) from ops.signin_people),
		(select count(*) from ops.signin_sessions), (select count(*) from ops.signin_accounts)`).Scan(&people, &sessions, &accounts))
	if people != 400 || sessions != 0 || accounts != 1 {
		t.Errorf("%d people, %d sessions, %d accounts", people, sessions, accounts)
	}
	states, err := next.States(t.Context(), s.ana)
	runtest.Must(t, err)
	if !next.Verified(states[s.ana], anasMail) || next.Verified(states[s.ana], "bo@acme.example") {
		t.Errorf("the restored proofs are those of %+v", states[s.ana])
	}
	pending := next.enters(anasMail, anas, home, nil)
	_, err = next.SecondFactor(t.Context(), pending.Token, next.code(e), Client{})
	runtest.Must(t, err)
	pending = next.enters(anasMail, anas, home, nil)
	_, err = next.SecondFactor(t.Context(), pending.Token, codes[0], Client{})
	runtest.Must(t, err)
}

func TestBackup_OfNobody(t *testing.T) {
	s := newScene(t)
	var dump bytes.Buffer
	runtest.Must(t, sealedtables.Dump(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	runtest.Must(t, sealedtables.Load(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	if dump.Len() != 0 {
		t.Errorf("a backup of nobody: %s", &dump)
	}
	_, err := s.DB.Exec(t.Context(), `alter table ops.signin_people rename to former`)
	runtest.Must(t, err)
	t.Cleanup(func() {
		_, err := s.DB.Exec(runtest.Context(t), `alter table ops.former rename to signin_people`)
		runtest.Must(t, err)
	})
	runtest.Must(t, sealedtables.Dump(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
}

// A seal key that is replaced can be given up: second factors and open links work without it.
func TestSealedTables_WhoseKeyIsReplaced(t *testing.T) {
	s := newScene(t)
	e, _ := s.enrolled()
	token, err := s.NewLink(t.Context(), Link{Person: s.ana, Email: anasMail, Purpose: Reset})
	runtest.Must(t, err)
	fresh := []byte(strings.Repeat("n", secret.SealKeyBytes))
	both, err := secret.NewSealer(fresh, []byte(strings.Repeat("k", secret.SealKeyBytes)))
	runtest.Must(t, err)
	for _, table := range SealedTables() {
		if done, unopened, err := table.Reseal(t.Context(), s.DB, both); done != 1 || unopened != 0 || err != nil {
			t.Errorf("%s: %d values are sealed again, %d are not, %v", table.Name, done, unopened, err)
		}
	}
	s.Sealer, err = secret.NewSealer(fresh)
	runtest.Must(t, err)
	if _, err := s.NewRecoveryCodes(t.Context(), s.ana, s.code(e)); err != nil {
		t.Errorf("the second factor does not open: %v", err)
	}
	if l, ok, err := s.Link(t.Context(), token); err != nil || !ok || l.Email != anasMail {
		t.Errorf("the link does not open: %+v, %t, %v", l, ok, err)
	}
}
