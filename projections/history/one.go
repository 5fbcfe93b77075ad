package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/eventstore"
)

// Whole is an event with its place in the log, its metadata and its payload.
type Whole struct {
	Event

	Type string `json:"type"`
	// These are of the log, and zero for an event that left it.
	Stream   string `json:"stream,omitempty"`
	Revision int64  `json:"revision"`
	Position uint64 `json:"position,omitempty"`
	// Metadata and Payload are JSON as it is stored, without the salt and without what is hidden.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
}

// wholeBytes is the most bytes of payloads and blobs that the page of an event decodes.
const wholeBytes = 8 << 20

// One reads an event. Its fault is not-found for one that the viewer may not see, as for one that is not there.
func (q Reader) One(ctx context.Context, v Viewer, id uuid.UUID) (Whole, error) {
	if err := q.await(ctx); err != nil {
		return Whole{}, err
	}
	row, ok, err := q.row(ctx, v, id)
	if err == nil && !ok {
		err = fault.New(fault.NotFound, fault.CodeNotFound, "there is no such event")
	}
	if err != nil {
		return Whole{}, err
	}
	shown, err := q.load(ctx, []entryRow{row}, wholeBytes)
	if err != nil {
		return Whole{}, err
	}
	s := &shown[0]
	if s.texts, err = q.readTexts(ctx, s.entry, s.record); err == nil {
		s.formerTexts, err = q.readTexts(ctx, s.entry, s.former)
	}
	if err != nil {
		return Whole{}, err
	}
	events, err := q.render(ctx, v, shown)
	if err != nil {
		return Whole{}, err
	}
	w := Whole{Event: events[0], Type: row.Type}
	if r := s.record; r != nil {
		w.Stream, w.Revision, w.Position = r.Stream, int64(r.Revision), uint64(r.Position)
		w.Metadata = hide(r.Meta, []string{"salt"})
		hidden := strings.Fields(s.entry.Hidden)
		if v.HidesTexts && s.entry.Texts {
			hidden = append(hidden, "identity", "traits", "patch", "inline")
		}
		if v.HidesTexts {
			hidden = append(hidden, "values") // of the rule of an audience, and of the filters of a webhook
		}
		w.Payload = hide(r.Data, hidden)
	}
	return w, nil
}

// readTexts reads the values of an event that blobs hold. One that is lost is left out.
func (q Reader) readTexts(ctx context.Context, e Entry, r *record) (map[string]any, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // nothing is read of an event that left the log
	}
	texts := map[string]any{}
	for text := range strings.FieldsSeq(e.Values) {
		path, form := pathForm(text)
		at := blobAt(r.payload, path)
		ref, ok := as[blob.Ref](at)
		if at == nil || !ok || ref.Size > wholeBytes {
			continue
		}
		data, err := q.Blobs.ReadBlob(ctx, ref)
		if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
			continue
		}
		if err != nil {
			return nil, err
		}
		if form == formMembers {
			texts[path] = membersIn(data)
			continue
		}
		if value, err := decode(data); err == nil {
			texts[path] = value
		}
	}
	return texts, nil
}

// membersIn are the members of an audience as a blob holds them: 16 bytes each.
func membersIn(data []byte) (ids []any) {
	for id := range slices.Chunk(data, len(uuid.UUID{})) {
		if len(id) == len(uuid.UUID{}) {
			ids = append(ids, uuid.UUID(id).String())
		}
	}
	return ids
}

const hiddenValue = "(hidden)"

// hide returns JSON with the values of some fields hidden, wherever these are, indented for people.
func hide(data []byte, fields []string) json.RawMessage {
	value, err := decode(data)
	if err != nil {
		return nil
	}
	hideIn(value, fields)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if encoder.Encode(value) != nil {
		return nil
	}
	return bytes.TrimSpace(out.Bytes())
}

func hideIn(value any, fields []string) {
	switch value := value.(type) {
	case map[string]any:
		for name, of := range value {
			if slices.Contains(fields, name) {
				value[name] = hiddenValue
			} else {
				hideIn(of, fields)
			}
		}
	case []any:
		for _, of := range value {
			hideIn(of, fields)
		}
	}
}
