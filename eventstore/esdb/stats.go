package esdb

// Stats are what became of the connections of a store.
type Stats struct {
	// Connected counts connections that were made, GivenUp those that were given up since their server
	// did not answer or does not lead, or could not be made.
	Connected, GivenUp int64
	// Moved is how often a connection went to another server than the one before it: another leader.
	Moved int64
}

// seen is what a pool counts, and the server of its newest connection.
type seen struct {
	Stats
	server string
}

// Stats returns what became of the connections.
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
