package memory

import (
	"time"

	"github.com/google/uuid"
)

// Embedded is what a model makes of the meaning of a revision: a vector for each passage and each
// memory. It is stored once, in so many parts as it takes to keep each event small; a replay asks
// no model. One without vectors records that the model accepts none of the texts.
type Embedded struct {
	ProjectID uuid.UUID `json:"projectId"`
	Revision  int       `json:"revision"`
	// Model names what made the vectors; vectors of different models do not compare.
	Model string `json:"model"`
	Dims  int    `json:"dims"`
	// Part counts from 1 to Parts. A first part replaces earlier ones.
	Part       int       `json:"part"`
	Parts      int       `json:"parts"`
	Vectors    []Vector  `json:"vectors,omitempty"`
	EmbeddedAt time.Time `json:"embeddedAt"`
}

func (Embedded) EventType() string { return "memory.embedded.v1" }

// Vector is the direction of the meaning of one text: a passage of the revision, or one of its
// memories.
type Vector struct {
	// Passage counts from 0; Memory is set instead for a memory.
	Passage int       `json:"passage"`
	Memory  uuid.UUID `json:"memory,omitzero"`
	// Hash is that of the text that was embedded, SHA-256 in hex.
	Hash string `json:"hash"`
	// Code holds a signed byte for each dimension; Scale times these is the vector, whose length is 1.
	Scale float32 `json:"scale"`
	Code  []byte  `json:"code"`
}
