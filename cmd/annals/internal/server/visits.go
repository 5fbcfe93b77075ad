package server

import (
	"context"
	"log/slog"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/console/signin"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/visits"
)

// buildVisits makes what appends to the log what people did without a change.
func buildVisits(_ context.Context, s *Server) (adds, error) {
	s.visits = visits.Queue{
		DB: s.storage.work,
		Decode: func(name string, payload []byte) (event.Event, error) {
			return s.storage.codec.Decode(eventstore.Recorded{Type: name, Data: payload})
		},
	}
	writer := commands.Visits{Journal: s.journal, Queue: s.visits, MembersOf: s.membersOf, Now: s.cfg.now}
	s.operatorLog = newOperatorLog(s.cfg.Data.Dir)
	return adds{work: []task{{"visits", writer.Run}, {"operator log", s.recordEarlierReads}}}, nil
}

// membersOf returns the organizations of which a person is a member.
func (s *Server) membersOf(ctx context.Context, person uuid.UUID) ([]uuid.UUID, error) {
	p, _, err := s.read.access.Memberships(ctx, person)
	ids := make([]uuid.UUID, len(p.Memberships))
	for i, m := range p.Memberships {
		ids[i] = m.Organization
	}
	return ids, err
}

// refusals counts refused sign-ins. An address that nobody has is in the log of the process too, without the address.
type refusals struct {
	count *prometheus.CounterVec
	log   *slog.Logger
}

func newRefusals(log *slog.Logger) refusals {
	r := refusals{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "annals_sign_ins_refused_total", Help: "Refused sign-ins with a password or a code, by the reason.",
	}, []string{"reason"}), log}
	for _, why := range []signin.Refusal{signin.NobodyHas, signin.Wrong, signin.TooMany, signin.NotInvited} {
		r.count.WithLabelValues(string(why))
	}
	return r
}

// refused is signin.Config.Refused.
func (r refusals) refused(ctx context.Context, c signin.Client, why signin.Refusal) {
	r.count.WithLabelValues(string(why)).Inc()
	if why == signin.NobodyHas {
		r.log.InfoContext(ctx, "sign-in refused: nobody has the address", "network", c.Address, "requestId", c.Request)
	}
}
