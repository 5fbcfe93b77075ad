package datapoints

import (
	"cmp"
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/ingestion"
)

// StoppedSend is a failed send whose failure still counts, for the person who may retry it.
type StoppedSend struct {
	IngestionID uuid.UUID `json:"ingestionId"`
	// Project is the slug of its project.
	Project string `json:"project"`
	// Code and Message are the failure of the send as its status shows them.
	Code       string    `json:"code"`
	Message    string    `json:"message"`
	Items      int       `json:"items"`
	AcceptedAt time.Time `json:"acceptedAt"`
	FailedAt   time.Time `json:"failedAt"`
	// Retryable is false if a retry would stop the same way.
	Retryable bool `json:"retryable"`
}

// StoppedList is some stopped sends, oldest first.
type StoppedList struct {
	Failed []StoppedSend `json:"failed"`
	// After requests those that follow, "" if there are none.
	After string `json:"after,omitempty"`
}

// MaxStopped is the most sends of a StoppedList.
const MaxStopped = 500

// StoppedSends lists stopped sends.
type StoppedSends struct {
	Queries  Queries
	Projects interface {
		// SlugOf returns the slug of a project, "" if there is none.
		SlugOf(ctx context.Context, project uuid.UUID) (string, error)
	}
	// AtOnce is how many sends Each reads at once, MaxStopped by default.
	AtOnce int
}

// List lists at most limit stopped sends of a project, or of all if that is uuid.Nil, after a send; uuid.Nil begins.
func (s StoppedSends) List(ctx context.Context, project uuid.UUID, limit int, after uuid.UUID) (StoppedList, error) {
	limit = min(limit, MaxStopped)
	found, err := s.Queries.FailedSends(ctx, project, limit, after)
	list, slugs := StoppedList{Failed: make([]StoppedSend, len(found))}, make(map[uuid.UUID]string)
	for i, f := range found {
		slug, known := slugs[f.ProjectID]
		if !known {
			if slug, err = s.Projects.SlugOf(ctx, f.ProjectID); err != nil {
				return StoppedList{}, err
			}
			slugs[f.ProjectID] = slug
		}
		list.Failed[i] = StoppedSend{
			IngestionID: f.IngestionID, Project: slug, Code: f.Failure.Code, Message: f.Failure.Message, Items: f.Items,
			AcceptedAt: f.AcceptedAt, FailedAt: f.FailedAt, Retryable: f.Failure.Code != ingestion.ContentRejected,
		}
	}
	if len(found) > 0 && len(found) == limit {
		list.After = found[len(found)-1].IngestionID.String()
	}
	return list, err
}

// Each passes on the stopped sends of a project, or of all if that is uuid.Nil, oldest first. It holds at most
// AtOnce of them.
func (s StoppedSends) Each(ctx context.Context, project uuid.UUID, emit func(StoppedSend) error) error {
	for after := uuid.Nil; ; {
		page, err := s.List(ctx, project, cmp.Or(s.AtOnce, MaxStopped), after)
		if err != nil {
			return err
		}
		for _, f := range page.Failed {
			if err := emit(f); err != nil {
				return err
			}
		}
		if page.After == "" {
			return nil
		}
		after = page.Failed[len(page.Failed)-1].IngestionID
	}
}
