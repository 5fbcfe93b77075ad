package why

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/trace"
)

// Kept is whether the log still has a text that was shown.
type Kept string

// The answers.
const (
	KeptAsStored Kept = "as-stored" // the event of the text has the leaf record of the read record
	KeptDiffers  Kept = "differs"   // it has another one: the log or the record was changed
	KeptUnproved Kept = "unproved"  // the read record has no leaf record
	KeptErased   Kept = "erased"
	KeptUnknown  Kept = "unknown" // the project has no such text
)

// ShownText is a text that a read record names, as the log has it.
type ShownText struct {
	Kept     Kept   `json:"kept"`
	SourceID string `json:"sourceId,omitempty"`
	Kind     string `json:"kind,omitempty"`
	// Text is the text, or its beginning if Cut is true.
	Text string `json:"text,omitempty"`
	Cut  bool   `json:"textCut,omitempty"`
	// Parts are those of the text of the source that were shown, or that a memory rests on, as many as there is room for.
	Parts []string `json:"parts,omitempty"`
	// Deleted is when the data point was deleted and by which request, nil if it is not, or not known yet.
	Deleted *Deleted `json:"deleted,omitempty"`
}

// selectPointDeleted finds the deletion of a data point of which no revision is known.
const selectPointDeleted = `select null::uuid, data_point, 0, null::bigint, null::bigint, null::bigint, deleted_at, request_id
	from trace.deleted where data_point = $1 and project_id = $2`

// ShownText reads a text that a read record of a project names from the log, at most so many bytes of it, and compares
// the record of its event.
func (s *Trace) ShownText(
	ctx context.Context, organization uuid.UUID, project auth.Project, of reads.Shown, most int,
) (t ShownText, err error) {
	at, known, err := s.locate(ctx, project, of.Node)
	switch {
	case err != nil:
		return t, err
	case !known && of.DataPoint != uuid.Nil:
		at, err = scanLocation(s.DB.QueryRow(ctx, selectPointDeleted, of.DataPoint, project.ID))
		if t.Kept = KeptUnknown; errors.Is(err, pgx.ErrNoRows) { // the read record names no text of it
			return t, nil
		}
		if err != nil {
			return t, fmt.Errorf("look for a deleted data point: %w", err)
		}
	case !known:
		t.Kept = KeptUnknown
		return t, nil
	}
	if at.deleted != nil {
		return ShownText{Kept: KeptErased, Deleted: at.deleted}, nil
	}
	t, err = s.shownText(ctx, organization, at, of, most)
	if errors.Is(err, errErased) { // the projection does not know the deletion yet
		return ShownText{Kept: KeptErased}, nil
	}
	return t, err
}

func (s *Trace) shownText(
	ctx context.Context, organization uuid.UUID, at location, of reads.Shown, most int,
) (t ShownText, err error) {
	r, err := replaySource(ctx, s.Journal, at)
	if err != nil {
		return t, err
	}
	source, err := wholeContent(ctx, s.Journal, r)
	if err != nil {
		return t, err
	}
	t.SourceID, t.Kind, t.Kept = r.Accepted.Effect.SourceID, KindSource, KeptUnproved
	if of.Node == at.node {
		t.Text = source
		if len(of.Leaf) > 0 {
			t.Kept, err = s.compareSource(ctx, organization, at, of.Leaf)
		}
	} else {
		t.Kind = KindMemory
		t.Text, t.Kept, err = s.shownMemory(ctx, organization, at, of)
	}
	if err != nil {
		return t, err
	}
	left := most
	for _, span := range of.Spans {
		if left > 0 && span[0] >= 0 && span[0] <= span[1] && span[1] <= len(source) {
			part, _ := cutBytes(source[span[0]:span[1]], left)
			t.Parts, left = append(t.Parts, part), left-len(part)
		}
	}
	t.Text, t.Cut = cutBytes(t.Text, most)
	return t, nil
}

// shownMemory finds the memories of a revision with a leaf record, else the newest ones: they may have been derived
// again since.
func (s *Trace) shownMemory(
	ctx context.Context, organization uuid.UUID, at location, of reads.Shown,
) (text string, kept Kept, err error) {
	kept = KeptUnproved
	if len(of.Leaf) > 0 {
		kept = KeptDiffers
	}
	var newest, found *memory.Derived
	err = s.Journal.Scan(ctx, stream.Name(stream.Memory, at.dataPoint), 0, func(e eventstore.DecodedEvent) (bool, error) {
		derived, is := e.Event.(*memory.Derived)
		if !is || derived.Revision != at.number {
			return true, nil
		}
		newest = derived
		was, err := compare(e, organization, of.Leaf)
		if was == KeptAsStored {
			found, kept = derived, was
		}
		return found == nil, err
	})
	if found == nil {
		found = newest
	}
	if err != nil || found == nil {
		return "", kept, erasedOr(err)
	}
	list, err := trace.MemoriesOf(ctx, s.Journal, found)
	if err != nil && !trace.IsLost(err) {
		return "", kept, err
	}
	for _, m := range list {
		if m.ID == of.Node {
			return m.Content, kept, nil
		}
	}
	return "", kept, nil
}

// compareSource compares the record of the event that accepted a revision.
func (s *Trace) compareSource(ctx context.Context, organization uuid.UUID, at location, leaf []byte) (Kept, error) {
	e, ok, err := s.Journal.At(ctx, stream.Name(stream.DataPoint, at.dataPoint), eventstore.Revision(*at.accepted))
	if err != nil || !ok {
		return "", erasedOr(err)
	}
	return compare(e, organization, leaf)
}

// compare compares the record of an event with the one that a read record has.
func compare(e eventstore.DecodedEvent, organization uuid.UUID, leaf []byte) (Kept, error) {
	is, err := e.Kept(organization)
	if err != nil {
		return "", fmt.Errorf("compare the record of a text: %w", err)
	}
	if bytes.Equal(is.Record[:], leaf) {
		return KeptAsStored, nil
	}
	return KeptDiffers, nil
}

// cutBytes returns at most so many bytes of a text, in full characters, and whether there are more.
func cutBytes(text string, most int) (start string, more bool) {
	if len(text) <= most {
		return text, false
	}
	return wholeCharacters([]byte(text[:most])), true
}
