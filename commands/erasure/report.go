package erasure

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/annals-project/annals/internal/work"
)

// What a round did with the files of the store.
const (
	StoreScavenged = "scavenged"
	StoreCluster   = "left to the cluster's own scavenge"
)

// Report counts what rounds erased.
type Report struct {
	// Deletions are recorded as cleaned, and Identities as cleared, with the people. Streams were tombstoned for
	// deletions, and Blobs were swept.
	Deletions  int `json:"deletions"`
	Identities int `json:"identities"`
	Streams    int `json:"streams"`
	Blobs      int `json:"blobs"`
	// Tables were vacuumed and Indexes expunged. Store is StoreScavenged or StoreCluster, "" if
	// nothing was purged.
	Tables  int    `json:"tables"`
	Indexes int    `json:"indexes"`
	Store   string `json:"store"`
	// Left is what still waits, and Trouble why.
	Left    work.Open `json:"left"`
	Trouble []string  `json:"-"`

	errs []error
}

// Fail adds the error of a step.
func (r *Report) Fail(step string, err error) {
	r.errs = append(r.errs, fmt.Errorf("%s: %w", step, err))
	r.Trouble = append(r.Trouble, step+": "+err.Error())
}

// Errs returns the errors of the last round.
func (r *Report) Errs() []error { return r.errs }

// Add adds what another round erased. Only the trouble of the last round counts.
func (r *Report) Add(o Report) {
	r.Deletions += o.Deletions
	r.Identities += o.Identities
	r.Streams += o.Streams
	r.Blobs += o.Blobs
	r.Tables, r.Indexes = max(r.Tables, o.Tables), max(r.Indexes, o.Indexes)
	if o.Store != "" {
		r.Store = o.Store
	}
	r.Trouble = o.Trouble
}

// Log logs what a scheduled round erased, and its errors.
func (r *Report) Log(ctx context.Context, logger *slog.Logger) {
	if r.Deletions+r.Identities+r.Blobs > 0 {
		logger.InfoContext(ctx, "erased deleted text", "deletions", r.Deletions, "identities", r.Identities,
			"streams", r.Streams, "blobs", r.Blobs, "tables", r.Tables, "indexes", r.Indexes, "store", r.Store)
	}
	for _, err := range r.errs {
		logger.WarnContext(ctx, "finisher step failed, will retry", "err", err)
	}
}
