package signin

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/sealedtables"
)

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
