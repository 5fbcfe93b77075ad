package signin

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/visits"
)

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
