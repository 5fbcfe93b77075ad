package commands

// RememberedAudiences is how many projects a service remembers the audiences of.
func RememberedAudiences(s *Service) int {
	s.audiences.mu.Lock()
	defer s.audiences.mu.Unlock()
	return len(s.audiences.known)
}
