package agents_test

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/internal/tokens"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// table are agents without keys.
type table struct {
	auth.Keys

	agents map[uuid.UUID]auth.AgentHolder
}

func (k table) Agent(_ context.Context, id uuid.UUID) (auth.AgentHolder, bool, error) {
	h, ok := k.agents[id]
	return h, ok, nil
}

// BenchmarkAuthenticate is what the token of one of 1,000 agents costs a recall: the budget is 1 ms.
func BenchmarkAuthenticate(b *testing.B) {
	sealer, err := secret.NewSealer(make([]byte, 32))
	runtest.Must(b, err)
	keys := tokens.New(tokens.Config{DB: pgtest.Database(b), Sealer: sealer})
	urls := auth.URLs{API: "https://api.example", Console: "https://console.example", Auth: "https://console.example"}
	known := table{agents: map[uuid.UUID]auth.AgentHolder{}}
	headers := make([]http.Header, 1000)
	for i := range headers {
		h := auth.AgentHolder{
			ID: uuid.New(), Organization: uuid.New(), Person: uuid.New(), Role: organization.Owner,
			Projects: []auth.Named{{Project: auth.Project{ID: uuid.New(), Slug: "default"}}},
		}
		known.agents[h.ID] = h
		token, err := keys.Sign(b.Context(), auth.AccessTokenType, auth.AgentClaims{
			RegisteredClaims: jwt.RegisteredClaims{
				Issuer: urls.Auth, Audience: jwt.ClaimStrings{urls.API + auth.Prefix}, Subject: h.Person.String(),
				ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
			},
			ClientID: auth.AgentID(h.ID), Actor: auth.Actor{Subject: auth.AgentID(h.ID)}, Organization: h.Organization,
			Scope: "memory:read",
		})
		runtest.Must(b, err)
		headers[i] = http.Header{"Authorization": {"Bearer " + token}}
	}
	route := auth.NewTable().Find(http.MethodPost, auth.Prefix+"/recall")
	a := auth.NewAuthenticator(auth.NewCache(known)).WithAgents(auth.AgentTokens{Keys: keys, URLs: urls})
	b.ResetTimer()
	before := processorTime(b)
	for i := range b.N {
		p, err := a.Authenticate(b.Context(), route, headers[i%len(headers)])
		if err != nil || p.Project.Slug != "default" {
			b.Fatalf("%+v, %v", p, err)
		}
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

// processorTime is what this process used so far: other processes of a busy machine do not count.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	runtest.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
