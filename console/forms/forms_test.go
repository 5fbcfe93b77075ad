package forms_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/console/forms"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newStore(t *testing.T) (forms.Store, *time.Time) {
	t.Helper()
	sealer, err := secret.NewSealer([]byte(strings.Repeat("k", secret.SealKeyBytes)))
	runtest.Must(t, err)
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	return forms.Store{DB: pgtest.Database(t), Sealer: sealer, Now: func() time.Time { return now }}, &now
}

func TestStore_AFormIsSpentOnce(t *testing.T) {
	s, now := newStore(t)
	mine, other := uuid.New(), uuid.New()
	begin := func(session uuid.UUID, token string, sent bool, want string) {
		t.Helper()
		answer, was, err := s.Begin(t.Context(), session, token)
		runtest.Must(t, err)
		if was != sent || answer != want {
			t.Errorf("%q: sent before %t, leads to %q; want %t, %q", token, was, answer, sent, want)
		}
	}
	begin(mine, "a", false, "")
	begin(mine, "a", true, "")
	begin(mine, "b", false, "")
	begin(other, "a", false, "")
	runtest.Must(t, s.Answer(t.Context(), mine, "a", "/there?x=1"))
	begin(mine, "a", true, "/there?x=1")
	begin(other, "a", true, "")

	runtest.Must(t, s.Release(t.Context(), mine, "a"))
	begin(mine, "a", true, "/there?x=1")
	runtest.Must(t, s.Release(t.Context(), mine, "b"))
	begin(mine, "b", false, "")

	*now = now.Add(forms.SentLife - time.Second)
	runtest.Must(t, s.Tidy(t.Context()))
	begin(mine, "a", true, "/there?x=1")
	*now = now.Add(time.Second)
	begin(mine, "a", false, "")
	runtest.Must(t, s.Tidy(t.Context()))
	begin(mine, "a", true, "")
	begin(other, "a", false, "")
}

func TestStore_WhatIsShownOnce(t *testing.T) {
	s, now := newStore(t)
	mine, id := uuid.New(), uuid.New()
	take := func(id, session uuid.UUID, path, want string) {
		t.Helper()
		value, found, err := s.Take(t.Context(), id, session, path)
		runtest.Must(t, err)
		if value != want || found != (want != "") {
			t.Errorf("%s shows %q, %t; want %q", path, value, found, want)
		}
	}
	runtest.Must(t, s.Keep(t.Context(), id, mine, "/keys", "the zebra"))
	var plain int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.console_shown
		where position('zebra'::bytea in sealed) > 0`).Scan(&plain))
	if plain > 0 {
		t.Error("it is stored in clear")
	}
	take(id, uuid.New(), "/keys", "")
	take(id, mine, "/other", "")
	take(uuid.New(), mine, "/keys", "")
	take(id, mine, "/keys", "the zebra")
	take(id, mine, "/keys", "")

	runtest.Must(t, s.Keep(t.Context(), id, mine, "/keys", "again"))
	*now = now.Add(forms.ShownLife)
	take(id, mine, "/keys", "")
	runtest.Must(t, s.Tidy(t.Context()))
	var left int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.console_shown`).Scan(&left))
	if left > 0 {
		t.Error("what has ended is still stored")
	}
}
