package directory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/directory"
)

// lateProjection is a projection that applies events only when a caller waits for the head of the log.
type lateProjection struct {
	head
	at     eventstore.Position
	waited int
	pass   func() error
}

func (b *lateProjection) Head(context.Context) (eventstore.Position, error) { return b.at, nil }

func (b *lateProjection) Wait(_ context.Context, at eventstore.Position, names ...string) error {
	if b.waited++; at != b.at || len(names) != 1 || names[0] != directory.Name {
		return errors.New("another position, or another projection")
	}
	return b.pass()
}

func TestQueries_WaitForHead(t *testing.T) {
	w := newFixture(t)
	log := &lateProjection{at: 77, pass: func() error { w.apply(); return nil }}
	w.queries = directory.NewQueries(w.db, log, log, log, log)
	w.apply()
	w.put("ana", nil)
	w.show("ana") // waits
	if log.waited != 1 {
		t.Errorf("it was waited for %d times", log.waited)
	}
	w.show("ana") // later events may be visible
	if log.waited != 2 {
		t.Error("what is there was not waited for")
	}
	w.put("ben", nil)
	w.want("the list", w.names(here, directory.Listing{Limit: 10}), []string{"ben", "ana"})
	w.fixed("aa", "ana")
	if list, err := w.queries.AudienceList(t.Context(), here); err != nil || len(list) != 2 {
		t.Errorf("%d audiences, %v", len(list), err)
	}
	w.fixed("bb", "ana")
	if _, ok, err := w.queries.Audience(t.Context(), here, "bb"); err != nil || !ok {
		t.Errorf("an audience: %v, %v", ok, err)
	}
	if _, ok, err := w.queries.Identity(t.Context(), here, "cid"); err != nil || ok {
		t.Errorf("one that is not there: %v, %v", ok, err)
	}

	late := fault.New(fault.Unavailable, fault.CodeServiceUnavailable, "late")
	log.pass = func() error { return late }
	for name, ask := range map[string]func(context.Context, auth.Project) error{
		"an unknown identity": func(ctx context.Context, p auth.Project) error {
			_, _, err := w.queries.Identity(ctx, p, "cid")
			return err
		},
		"what is there": func(ctx context.Context, p auth.Project) error {
			_, _, err := w.queries.Identity(ctx, p, "ana")
			return err
		},
		"the list": func(ctx context.Context, p auth.Project) error {
			_, err := w.queries.Identities(ctx, p, directory.Listing{Limit: 1})
			return err
		},
		"audiences": func(ctx context.Context, p auth.Project) error { _, err := w.queries.AudienceList(ctx, p); return err },
		"an unknown audience": func(ctx context.Context, p auth.Project) error {
			_, _, err := w.queries.Audience(ctx, p, "cc")
			return err
		},
	} {
		if err := ask(t.Context(), here); !errors.Is(err, late) {
			t.Errorf("%s, late: %v", name, err)
		}
	}
}
