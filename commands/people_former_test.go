package commands_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/work"
)

const (
	kim    = "kim@acme.example"
	kelvin = "\u212aim@acme.example" // compared as kim's before
	marta  = "MÄRTA@acme.example"
)

// stored makes a member of Annals whose address is claimed as versions did that compared by the lower case of Unicode.
func (w *fixture) stored(email string) uuid.UUID {
	w.t.Helper()
	id := w.add("Annals", "member"+uuid.NewString()+"@acme.example", organization.Member)
	forms := person.Forms(email)
	name, err := w.log.Namespaces.AddressName(forms[len(forms)-1])
	if err != nil {
		w.t.Fatal(err)
	}
	claims := w.claims()
	given := claims[slices.IndexFunc(claims, func(p work.Person) bool { return p.ID == id })].Addresses[0]
	people := stream.Name(stream.Person, id)
	events, err := w.store.Read(w.t.Context(), people, 0, eventstore.Forwards, 100)
	if err != nil {
		w.t.Fatal(err)
	}
	meta := event.NewMeta("test", w.call.ReceivedAt)
	for _, c := range []struct {
		stream string
		at     eventstore.Revision
		event  event.Event
	}{
		{name, eventstore.NoStream, person.AddressClaimed{PersonID: id, ClaimedAt: w.call.ReceivedAt}},
		{people, events[len(events)-1].Revision, person.AddressChanged{PersonID: id, Email: email, ChangedAt: w.call.ReceivedAt}},
		{given, 0, person.AddressReleased{PersonID: id, ReleasedAt: w.call.ReceivedAt}},
	} {
		if _, err := w.log.Append(w.t.Context(), c.stream, c.at, meta, c.event); err != nil {
			w.t.Fatal(err)
		}
	}
	return id
}

func (w *fixture) wantFound(email string, want uuid.UUID) {
	w.t.Helper()
	id, found, err := w.FindPerson(w.t.Context(), email)
	if err != nil || found != (want != uuid.Nil) || id != want {
		w.t.Errorf("%q is of %s, %t, %v, want %s", email, id, found, err, want)
	}
}

// A Kelvin sign is no k: two people have the two addresses.
func TestPeople_LettersThatOnlyUnicodeFolds(t *testing.T) {
	w := peopled(t)
	first := w.add("Annals", kim, organization.Member)
	w.wantFound(kelvin, uuid.Nil)
	second := w.add("Annals", kelvin, organization.Member)
	if first == second {
		t.Error("one person has both addresses")
	}
	w.wantFound(kim, first)
	w.wantFound("KIM@ACME.example", first)
	w.wantFound(kelvin, second)
	err := w.ChangeAddress(t.Context(), w.call, second, kim)
	wantFault(t, err, "conflict")
}

// Who was stored under the former form of the address is found by it, and is added as the same person.
func TestPeople_StoredUnderTheFormerForm(t *testing.T) {
	w := peopled(t)
	id := w.stored(marta)
	w.wantFound(marta, id)
	w.wantFound("mÄrta@ACME.example", id)
	w.wantFound("märta@acme.example", uuid.Nil) // another mailbox
	if got := w.add("Acme", marta, organization.Member); got != id {
		t.Errorf("added %s, want %s", got, id)
	}
	for _, p := range w.claims() { // the finisher leaves the claim
		if _, err := w.log.SettlePerson(t.Context(), p, w.call.ReceivedAt.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	w.wantFound(marta, id)
	other := w.add("Acme", "cy@acme.example", organization.Member)
	wantFault(t, w.ChangeAddress(t.Context(), w.call, other, marta), "conflict")
	// A change of the address leaves nothing under the former form.
	if err := w.ChangeAddress(t.Context(), w.call, id, "marta@acme.example"); err != nil {
		t.Fatal(err)
	}
	w.wantFound(marta, uuid.Nil)
	w.wantFound("marta@acme.example", id)
	w.settle(w.call.ReceivedAt.Add(2 * time.Hour))
}

// The holder of the address that has the name now takes it, and the person of before keeps the other address.
func TestPeople_FormerNameOfAnotherAddress(t *testing.T) {
	for name, take := range map[string]func(w *fixture) uuid.UUID{
		"a new person": func(w *fixture) uuid.UUID { return w.add("Acme", kim, organization.Member) },
		"a change": func(w *fixture) uuid.UUID {
			id := w.add("Acme", "cy@acme.example", organization.Member)
			if err := w.ChangeAddress(w.t.Context(), w.call, id, kim); err != nil {
				w.t.Fatal(err)
			}
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := peopled(t)
			before := w.stored(kelvin)
			w.wantFound(kelvin, before)
			w.wantFound(kim, uuid.Nil)
			id := take(w)
			w.wantFound(kim, id)
			w.wantFound(kelvin, before)
			w.settle(w.call.ReceivedAt.Add(2 * time.Hour))
			w.wantFound(kim, id)
			w.wantFound(kelvin, before)
		})
	}
}
