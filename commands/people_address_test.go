package commands_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
)

func TestChangeAddress_OfAMember(t *testing.T) {
	const newer = "ana@new.example"
	w := peopled(t)
	id := w.add("Annals", anas, organization.Owner)
	for _, email := range []string{newer, newer, "Ana@New.example", newer} {
		if err := w.ChangeAddress(t.Context(), w.call, id, email); err != nil {
			t.Fatal(err)
		}
		if got := w.members("Annals"); !slices.Equal(got, []string{email + " owner"}) {
			t.Errorf("members %v, want %s", got, email)
		}
	}
	for email, want := range map[string]bool{anas: false, newer: true} {
		if got, found, err := w.FindPerson(t.Context(), email); err != nil || found != want || found && got != id {
			t.Errorf("%s is %s, %v, %v", email, got, found, err)
		}
	}
	if other := w.add("Acme", anas, organization.Member); other == id {
		t.Error("the address of before still is of the person")
	}
	if got := w.add("Acme", newer, organization.Member); got != id {
		t.Errorf("the new address is of %s", got)
	}
	w.settle(w.call.ReceivedAt.Add(time.Hour))
	records, err := w.store.ReadAll(t.Context(), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	wantNoAddress(t, records, anas, newer)
}

func TestChangeAddress_BackAndForth(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Owner)
	for _, email := range []string{"ana@new.example", anas, "ana@new.example", anas} {
		if err := w.ChangeAddress(t.Context(), w.call, id, email); err != nil {
			t.Fatal(err)
		}
	}
	w.settle(w.call.ReceivedAt.Add(time.Hour))
	if got := w.members("Annals"); !slices.Equal(got, []string{anas + " owner"}) {
		t.Errorf("members %v", got)
	}
}

func TestChangeAddress_Faults(t *testing.T) {
	w := peopled(t)
	id := w.add("Annals", anas, organization.Member)
	gone := w.add("Annals", "gone@acme.example", organization.Member)
	w.at(w.call.ReceivedAt.Add(time.Hour))
	if err := w.RemovePerson(t.Context(), w.call, gone); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"no address":                   {w.ChangeAddress(t.Context(), w.call, id, "ana"), "invalid-request"},
		"the address of another":       {w.ChangeAddress(t.Context(), w.call, id, "BO@acme.example"), "conflict"},
		"of an erased person":          {w.ChangeAddress(t.Context(), w.call, gone, "new@acme.example"), "not-found"},
		"of nobody":                    {w.ChangeAddress(t.Context(), w.call, uuid.New(), "new@acme.example"), "not-found"},
		"the address of an erased one": {w.ChangeAddress(t.Context(), w.call, id, "gone@acme.example"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.code != "" || c.err != nil {
				_ = wantFault(t, c.err, c.code)
			}
		})
	}
	w.settle(w.call.ReceivedAt.Add(2 * time.Hour))
}
