package esdb

// Stats counts events of the connections of a store.
type Stats struct {
	// Connected counts the connections that were made. GivenUp counts those that failed or were
	// abandoned, because their server does not respond or is not the leader.
	Connected, GivenUp int64
	// Moved counts the connections to another server than the one before, such as to a new leader.
	Moved int64
}

// seen holds the counts of a pool, and the server of its newest connection.
type seen struct {
	Stats
	server string
}

// Stats returns the counts of the connections.
func (s *Store) Stats() Stats {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.pool.seen.Stats
}

func (p *pool) countConnected(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Connected++
	if p.seen.server != "" && p.seen.server != l.server {
		p.seen.Moved++
	}
	p.seen.server = l.server
}
