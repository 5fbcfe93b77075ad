package todo

import "github.com/google/uuid"

// Embedding is a captured revision that has no vectors of the model that is set.
type Embedding struct {
	ProjectID uuid.UUID
	DataPoint uuid.UUID
	Revision  int
}
