package directory_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
)

// The private audience of a record is reached by that record alone: not by others, and not by a later record of the
// same name.
func TestReach_Private(t *testing.T) {
	w := newFixture(t, "there")
	born := w.now()
	w.appear("ana")
	w.put("ben", traits{"team": "red"})
	w.fixed("a", "ana", "ben")
	w.apply()
	first := w.private("ana")
	reaches := func(name string, want bool) {
		t.Helper()
		reach, err := w.queries.Reach(t.Context(), here, name)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(reach.Audiences, first) != want {
			t.Errorf("%s reaches it: %t", name, !want)
		}
	}
	names := func(project auth.Project, of uuid.UUID, slug, identity string) {
		t.Helper()
		gotSlug, gotIdentity, err := w.queries.Readers(t.Context(), project, of)
		if err != nil || gotSlug != slug || gotIdentity != identity {
			t.Errorf("readers %q, %q, %v, want %q, %q", gotSlug, gotIdentity, err, slug, identity)
		}
	}
	reaches("ana", true)
	reaches("ben", false)
	reaches("eve", false)
	names(here, first, "", "ana")
	names(here, id("a"), "a", "")
	names(here, id("nothing"), "", "")
	names(project("there"), first, "", "")

	changed := w.record("ana", traits{"team": "blue"})
	changed.CreatedAt = born
	w.Append(stream.Name(stream.Identity, who("ana")), &identity.TraitsReplaced{ProjectID: here.ID, Record: changed})
	w.apply()
	reaches("ana", true)

	w.remove("ana")
	w.apply()
	reaches("ana", false)
	names(here, first, "", "")
	w.put("ana", traits{"team": "blue"})
	w.apply()
	reaches("ana", false)
	names(here, first, "", "")
	if w.private("ana") == first {
		t.Error("the record that was made again has the audience of before")
	}
}

// Whose private audience it is decides who may read it, and no project lists it.
func TestJudge_Private(t *testing.T) {
	w := newFixture(t)
	w.appear("ana")
	w.appear("ben")
	w.apply()
	for name, member := range map[string]bool{"ana": true, "ben": false, "eve": false} {
		j, err := w.queries.Judge(t.Context(), here, name, w.private("ana"))
		if err != nil || j.IsMember != member || j.PrivateTo != "ana" || j.Audience != nil {
			t.Errorf("%s: %+v, %v", name, j, err)
		}
	}
	list, _, err := w.queries.Memberships(t.Context(), here, "ana")
	if err != nil || len(list) != 0 {
		t.Errorf("ana belongs to %+v, %v", list, err)
	}
}
