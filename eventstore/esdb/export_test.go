package esdb

import (
	"context"
	"time"
)

// SetSlowAfter makes calls slow after a time. It is called before the first call.
func (s *Store) SetSlowAfter(d time.Duration) { s.pool.slow.after = d }

// SlowCalls is how many calls are slow now.
func (s *Store) SlowCalls() int {
	s.pool.slow.mu.Lock()
	defer s.pool.slow.mu.Unlock()
	all := 0
	for _, calls := range s.pool.slow.servers {
		all += calls
	}
	return all
}

// SetDistrustTime sets how long an old leader is distrusted.
func (s *Store) SetDistrustTime(d time.Duration) { s.pool.leader.distrustTime = d }

// ErrorOfCall is the error of a call that failed with another one.
func (s *Store) ErrorOfCall(ctx context.Context, err error) error { return s.pool.nameLeader(ctx, err) }
