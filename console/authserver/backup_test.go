package authserver

import (
	"bytes"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/sealedtables"
)

// After a restore a client keeps its id and what people let it do, and has to ask for tokens again.
func TestBackup_KeepsClientsAndGrants(t *testing.T) {
	s := newScene(t)
	client, has := s.connected(s.ana)
	before, err := s.Grants(t.Context(), s.ana)
	runtest.Must(t, err)
	var dump bytes.Buffer
	runtest.Must(t, sealedtables.Dump(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	if bytes.Contains(dump.Bytes(), []byte("app.example")) {
		t.Error("the backup is not sealed")
	}
	_, err = s.DB.Exec(t.Context(), `delete from ops.oauth_grants; delete from ops.oauth_clients`)
	runtest.Must(t, err)
	runtest.Must(t, sealedtables.Load(t.Context(), s.DB, s.Sealer, &dump, Tables()...))
	after, err := s.Grants(t.Context(), s.ana)
	runtest.Must(t, err)
	if len(after) != 1 || len(before) != 1 || after[0].ID != before[0].ID || after[0].ClientID != client {
		t.Errorf("%+v, want %+v", after, before)
	}
	refused(t, "refresh", s.refreshes(client, has.RefreshToken), 400, invalidGrant)
	got := s.send("GET", "/oauth2/consent?"+asks(client).Encode(), s.ana, "", "")
	s.tokens(s.redeems(client, back(t, got).Get("code")))
}
