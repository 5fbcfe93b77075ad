package commands

// RememberedAudiences returns how many projects the audience cache of a service holds, and how many
// audiences they have together.
func RememberedAudiences(s *Service) (projects, audiences int) {
	s.audiences.mu.Lock()
	defer s.audiences.mu.Unlock()
	for _, state := range s.audiences.known.Values() {
		audiences += state.Len()
	}
	return s.audiences.known.Len(), audiences
}
