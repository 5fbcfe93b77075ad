package person_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/person"
)

var (
	ana  = uuid.MustParse("00000000-0000-4000-8000-0000000000aa")
	bo   = uuid.MustParse("00000000-0000-4000-8000-0000000000bb")
	acme = uuid.MustParse("00000000-0000-4000-8000-0000000000cc")
	noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
)

var (
	registered = &person.Registered{PersonID: ana, Email: "Ana@acme.example", RegisteredAt: noon}
	joinBegun  = &person.JoinBegun{PersonID: ana, OrganizationID: acme, BegunAt: noon}
	changed    = &person.AddressChanged{PersonID: ana, Email: "ana@new.example", ChangedAt: noon}
	removed    = &person.Removed{PersonID: ana, RemovedAt: noon}
)

func folded(events ...event.Event) *person.State {
	s := &person.State{}
	for _, e := range events {
		s.Evolve(e)
	}
	return s
}

func TestState_Decisions(t *testing.T) {
	register := func(s *person.State) []event.Event { return s.Register(ana, "Ana@acme.example", noon) }
	join := func(s *person.State) []event.Event { return s.Join(ana, acme, "Ana@acme.example", noon) }
	change := func(s *person.State) []event.Event { return s.ChangeAddress(ana, "ana@new.example", noon) }
	remove := func(s *person.State) []event.Event { return s.Remove(ana, noon) }
	for _, c := range []struct {
		name   string
		given  []event.Event
		decide func(*person.State) []event.Event
		want   []event.Event
	}{
		{"the first registration", nil, register, []event.Event{*registered}},
		{"a second registration", []event.Event{registered}, register, nil},
		{"the registration of a removed person", []event.Event{registered, removed}, register, nil},
		{"a join", []event.Event{registered}, join, []event.Event{*joinBegun}},
		{"a join that began before", []event.Event{registered, joinBegun}, join, []event.Event{*joinBegun}},
		{"a join that registers", nil, join, []event.Event{*registered, *joinBegun}},
		{"a join of a removed person", []event.Event{registered, removed}, join, nil},
		{"a change of the address", []event.Event{registered}, change, []event.Event{*changed}},
		{"a second change of the address", []event.Event{registered, changed}, change, nil},
		{"a change of the address of nobody", nil, change, nil},
		{"a change of the address of a removed person", []event.Event{registered, removed}, change, nil},
		{"a removal", []event.Event{registered, joinBegun}, remove, []event.Event{*removed}},
		{"a second removal", []event.Event{registered, removed}, remove, nil},
		{"a removal of nobody", nil, remove, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.decide(folded(c.given...))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestState_Leave(t *testing.T) {
	for _, c := range []struct {
		name   string
		given  []event.Event
		member bool
		after  time.Duration
		want   bool
	}{
		{"a claim that may be registered", nil, false, 59 * time.Second, false},
		{"a claim that was abandoned", nil, false, time.Minute, true},
		{"without an organization so far", []event.Event{registered}, false, 59 * time.Minute, false},
		{"without an organization for long", []event.Event{registered}, false, time.Hour, true},
		{"about to join", []event.Event{registered, joinBegun}, false, 59 * time.Second, false},
		{"never joined", []event.Event{registered, joinBegun}, false, time.Minute, true},
		{"a member", []event.Event{registered, joinBegun}, true, time.Hour, false},
		{"removed", []event.Event{registered, joinBegun, removed}, false, time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := noon.Add(c.after)
			var want []event.Event
			if c.want {
				want = []event.Event{person.Removed{PersonID: ana, RemovedAt: at}}
			}
			if diff := cmp.Diff(want, folded(c.given...).Leave(ana, c.member, noon, at)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAddress_ClaimAndRelease(t *testing.T) {
	anas := &person.AddressClaimed{PersonID: ana, ClaimedAt: noon}
	bos := &person.AddressClaimed{PersonID: bo, ClaimedAt: noon}
	release := &person.AddressReleased{PersonID: ana, ReleasedAt: noon}
	for _, c := range []struct {
		name    string
		given   []event.Event
		dead    uuid.UUID
		claims  bool
		holder  uuid.UUID
		release bool
	}{
		{"of nobody", nil, uuid.Nil, true, uuid.Nil, false},
		{"of somebody who lives", []event.Event{anas}, uuid.Nil, false, ana, true},
		{"of somebody else who is dead", []event.Event{anas}, acme, false, ana, true},
		{"of somebody who is dead", []event.Event{anas}, ana, true, ana, true},
		{"released", []event.Event{anas, release}, uuid.Nil, true, uuid.Nil, false},
		{"claimed again", []event.Event{anas, bos}, uuid.Nil, true, bo, true},
		{"claimed again and then released", []event.Event{anas, bos, release}, uuid.Nil, true, bo, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a person.Address
			for _, e := range c.given {
				a.Evolve(e)
			}
			if got := len(a.ReleaseAbandoned(ana, noon.Add(59*time.Second))) == 1; got {
				t.Error("a claim of a moment ago is abandoned")
			}
			if got := len(a.ReleaseAbandoned(ana, noon.Add(time.Minute))) == 1; got != c.release {
				t.Errorf("abandoned: %t", got)
			}
			if got := len(a.Claim(a.Holder, uuid.Nil, noon)); a.Holder != uuid.Nil && got != 1 {
				t.Error("the holder does not claim again")
			}
			if got := len(a.Claim(bo, c.dead, noon)) == 1; got != c.claims {
				t.Errorf("claimed: %t", got)
			}
			if got := len(a.Release(ana, noon)) == 1; got != c.release || a.Holder != c.holder {
				t.Errorf("released: %t, held by %s", got, a.Holder)
			}
		})
	}
}

func TestEmail_Normal(t *testing.T) {
	for email, want := range map[string]string{
		"Ana@ACME.example": "ana@acme.example", "ana@acme.example": "ana@acme.example", "o\u0308@b.c": "ö@b.c", "Ö@b.c": "Ö@b.c",
		"a.n+a@b.c": "a.n+a@b.c", "\u212aim@B.\u212aim": "\u212aim@b.\u212aim", "a\u037eb\u1fefC@\u0130.c": "a\u037eb\u1fefc@\u0130.c",
	} {
		if got := person.NormalEmail(email); got != want {
			t.Errorf("NormalEmail(%q) = %q, want %q", email, got, want)
		}
	}
}

// No other character is compared as one of ASCII.
func TestEmail_OnlyASCIIIsFolded(t *testing.T) {
	for r := rune(utf8.RuneSelf); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		email := string(r) + "@b.c"
		if got := person.NormalEmail(email); got[0] < utf8.RuneSelf {
			t.Errorf("%U is compared as %q", r, got)
		}
		upper := unicode.ToUpper(r)
		if upper != r && person.NormalEmail(string(upper)+"@b.c") == person.NormalEmail(email) {
			t.Errorf("%U is compared as its upper case", r)
		}
	}
}

func TestEmail_Forms(t *testing.T) {
	for email, want := range map[string][]string{
		"Ana@ACME.example": {"ana@acme.example"}, "o\u0308@b.c": {"ö@b.c"}, "Ö@B.c": {"Ö@b.c", "ö@b.c"},
		"\u212aim@b.c": {"\u212aim@b.c", "kim@b.c"}, "kim@b.c": {"kim@b.c"},
	} {
		if got := person.Forms(email); !slices.Equal(got, want) {
			t.Errorf("Forms(%q) = %q, want %q", email, got, want)
		}
	}
	state := func(email string) *person.State {
		s := &person.State{}
		s.Evolve(&person.Registered{Email: email})
		return s
	}
	if !state("\u212aim@b.c").Had("kim@b.c") || state("kim@b.c").Had("Kim@b.c") || state("tim@b.c").Had("kim@b.c") {
		t.Error("Had is wrong about an address that was compared as the same before")
	}
	removed := state("\u212aim@b.c")
	if removed.Evolve(&person.Removed{}); removed.Had("kim@b.c") {
		t.Error("a removed person has the address")
	}
}

func TestEmail_Valid(t *testing.T) {
	for email, want := range map[string]bool{
		"a@b.c": true, "a.b+c@d.example": true, "ö@exämple.de": true, `"a@b"@c.de`: true,
		"": false, "@b.c": false, "a@": false, "a@b": false, "a@.c": false, "a@b.": false, "a b@c.de": false, "a@b.c\n": false, "a\x00@b.c": false, "\xff@b.c": false,
		strings.Repeat("a", 250) + "@b.c": true, strings.Repeat("a", 251) + "@b.c": false,
	} {
		if got := person.ValidEmail(email); got != want {
			t.Errorf("ValidEmail(%.20q) = %v", email, got)
		}
	}
}
