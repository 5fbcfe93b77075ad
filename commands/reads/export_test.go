package reads

import "github.com/google/uuid"

// Waiting is how many answers of a project wait for their records.
func (r *Recorder) Waiting(project uuid.UUID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lanes[project]; l != nil {
		return l.waits
	}
	return 0
}
