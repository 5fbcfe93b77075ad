package authserver

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/sealedtables"
)

// After a restore a client keeps its id and what people let it do, with the second factor, and has to ask for tokens
// again. What ended with all of a person is still to be recorded.
func TestBackup_KeepsClientsAndGrants(t *testing.T) {
	s := newScene(t)
	s.second = true
	s.connected(s.ben)
	runtest.Must(t, pgx.BeginFunc(t.Context(), s.DB, func(tx pgx.Tx) error { return s.EndAll(t.Context(), tx, s.ben) }))
	client, has := s.connected(s.ana)
	before, err := s.Grants(t.Context(), s.ana)
	runtest.Must(t, err)
	var dump bytes.Buffer
	runtest.Must(t, sealedtables.Dump(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	if bytes.Contains(dump.Bytes(), []byte("app.example")) {
		t.Error("the backup is not sealed")
	}
	_, err = s.DB.Exec(t.Context(), `delete from ops.oauth_grants; delete from ops.oauth_clients;
		delete from ops.oauth_endings`)
	runtest.Must(t, err)
	runtest.Must(t, sealedtables.Load(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	after, err := s.Grants(t.Context(), s.ana)
	runtest.Must(t, err)
	if len(after) != 1 || len(before) != 1 || after[0].ID != before[0].ID || after[0].ClientID != client {
		t.Errorf("%+v, want %+v", after, before)
	}
	s.people[s.ana].Memberships[0].SecondFactor = true
	runtest.Must(t, s.Tidy(t.Context()))
	if e, is := s.log.all()[len(s.log.all())-1].(organization.GrantRevoked); !is || e.MemberID != s.ben {
		t.Errorf("the last event is %+v", e)
	}
	refused(t, "refresh", s.refreshes(client, has.RefreshToken), 400, invalidGrant)
	got := s.send("GET", "/oauth2/consent?"+asks(client).Encode(), s.ana, "", "")
	s.tokens(s.redeems(client, back(t, got).Get("code")))
}
