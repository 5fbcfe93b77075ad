package commands

// RememberedAudiences is how many projects a service remembers the audiences of, and how many audiences those have.
func RememberedAudiences(s *Service) (projects, audiences int) {
	s.audiences.mu.Lock()
	defer s.audiences.mu.Unlock()
	for _, state := range s.audiences.known {
		audiences += state.Len()
	}
	return len(s.audiences.known), audiences
}
