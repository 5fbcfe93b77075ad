package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/ratelimit"
)

const (
	// Registrations of one network address and for one address of mail, in an hour.
	registrationsOfCaller = 20
	registrationsOfHint   = 10
	// registrationsOfAll are those of all network addresses in an hour, since one attacker may have many. A part of it,
	// and of those for an address of mail, is kept for network addresses that registered before (ratelimit.Standing).
	registrationsOfAll = 1000
	// registeringSpan is the time in which registrations are counted.
	registeringSpan = time.Hour
	// rememberedAgents is how many registrations of a network address show its standing: the newest.
	rememberedAgents = 200
)

// networkOf is the keyed hash of a network address.
func (s *Service) networkOf(address string) []byte { return s.keyed("network of an agent", address) }

// limit bounds the registrations of a network address, for an address of mail, and of all of them together.
func (s *Service) limit(ctx context.Context, network, hint []byte) error {
	return s.limitBy(ctx, network, hint, func(ctx context.Context) ([]ratelimit.Standing, error) {
		return s.standings(ctx, network, hint)
	})
}

func (s *Service) limitBy(
	ctx context.Context, network, hint []byte, standings func(context.Context) ([]ratelimit.Standing, error),
) error {
	retry, ok, err := s.registering.AllowAll(ctx, []ratelimit.Cap{
		{ID: uuid.UUID(network[:16]), Limit: registrationsOfCaller},
		{ID: uuid.UUID(hint[:16]), Limit: registrationsOfHint, Reserved: true},
		{ID: uuid.Max, Limit: registrationsOfAll, Reserved: true},
	}, standings)
	if err == nil && !ok {
		err = tooFast(retry, "too many registrations")
	}
	return err
}

// standings returns what is known of the agents of a network address at each cap: for its own, of those for an address
// of mail, and of all of them.
func (s *Service) standings(ctx context.Context, network, hint []byte) ([]ratelimit.Standing, error) {
	own, mine, all := ratelimit.Newcomer, ratelimit.Newcomer, ratelimit.Newcomer
	err := s.DB.QueryRow(ctx, `with registered as (select hint, case when claimed_at is not null then $4::int
				when created_at <= $3 then $5::int else $6::int end as standing
			from ops.agent_registrations where network = $1 order by created_at desc limit $7)
		select coalesce(max(standing) filter (where hint = $2), $6), coalesce(max(standing), $6) from registered`,
		network, hint, s.now().Add(-registeringSpan), int(ratelimit.Trusted), int(ratelimit.Returning),
		int(ratelimit.Newcomer), rememberedAgents).Scan(&mine, &all)
	if err != nil {
		return nil, fmt.Errorf("find the standing of a network address: %w", err)
	}
	return []ratelimit.Standing{own, mine, all}, nil
}
