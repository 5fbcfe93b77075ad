package eventstore

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/stream"
)

// Codec encodes events for the store and decodes stored ones, by a catalogue.
type Codec struct {
	constructors map[string]domain.Constructor
	steps        map[string]event.Steps
}

// NewCodec returns a codec of a catalogue. It refuses a name that occurs twice, and that of a chunk,
// which is not JSON, and an event whose steps are not in order.
func NewCodec(catalog []domain.Constructor) (*Codec, error) {
	c := &Codec{
		constructors: make(map[string]domain.Constructor, len(catalog)), steps: make(map[string]event.Steps, len(catalog)),
	}
	for _, construct := range catalog {
		e := construct()
		name := e.EventType()
		if _, twice := c.constructors[name]; twice || name == blob.ChunkType {
			return nil, fmt.Errorf("catalogue: %s is already taken", name)
		}
		steps, err := event.StepsOf(e)
		if err != nil {
			return nil, fmt.Errorf("catalogue: %w", err)
		}
		c.constructors[name], c.steps[name] = construct, steps
	}
	return c, nil
}

// Encode makes the n-th event of a command ready to append. Its id derives from meta.CommandID and
// n, its salt is random: to repeat an append, send what was encoded, and do not encode again. The
// time of meta must be set.
//
// A fan-out in another process encodes again under the same id. The store then keeps and answers
// what it has, and so does the fan-out.
func (c *Codec) Encode(e event.Event, n int, meta event.Meta) (Proposed, error) {
	if meta.At.IsZero() {
		return Proposed{}, fmt.Errorf("encode %s: its metadata has no time", e.EventType())
	}
	meta.Schema, meta.At = c.steps[e.EventType()].Of(e), meta.At.UTC().Truncate(time.Microsecond)
	details, err := marshal(meta)
	if err != nil {
		return Proposed{}, fmt.Errorf("encode metadata of %s: %w", e.EventType(), err)
	}
	var salt [event.SaltSize]byte
	_, _ = rand.Read(salt[:]) // never fails
	p := Proposed{ID: event.ID(meta.CommandID, n), Type: e.EventType(), Meta: event.WithSalt(details, salt)}
	if chunk, raw := e.(blob.Chunk); raw {
		p.Data = chunk.Data
		return p, nil
	}
	if _, known := c.constructors[p.Type]; !known {
		return Proposed{}, fmt.Errorf("encode %s: the catalogue does not have this name", p.Type)
	}
	if p.Data, err = marshal(e); err != nil {
		return Proposed{}, fmt.Errorf("encode %s: %w", p.Type, err)
	}
	return p, nil
}

// EncodeAll encodes the events of one command in order.
func (c *Codec) EncodeAll(events []event.Event, meta event.Meta) ([]Proposed, error) {
	proposed := make([]Proposed, len(events))
	for i, e := range events {
		var err error
		if proposed[i], err = c.Encode(e, i, meta); err != nil {
			return nil, err
		}
	}
	return proposed, nil
}

// Decode decodes the payload of one recorded event, whatever its step is. An unknown name is an *UnknownEventError.
func (c *Codec) Decode(r Recorded) (event.Event, error) {
	if r.Type == blob.ChunkType {
		return blob.Chunk{Data: r.Data}, nil
	}
	construct, known := c.constructors[r.Type]
	if !known {
		return nil, &UnknownEventError{Stream: r.Stream, Type: r.Type}
	}
	e := construct()
	if err := json.Unmarshal(r.Data, e); err != nil {
		return nil, fmt.Errorf("decode %s at %d of %s: %w", r.Type, r.Revision, r.Stream, err)
	}
	return e, nil
}

// DecodeRecorded decodes one recorded event together with its metadata. A step that the catalogue does not have is an
// *UnknownEventError: the event may set a field that this program would leave out. A panic of a decoder is the
// error of that event. A stray event is PassedOver: see datapoint.RevisionAccepted.
func (c *Codec) DecodeRecorded(r Recorded) (f DecodedEvent) {
	f = DecodedEvent{Recorded: r}
	defer func() {
		if v := recover(); v != nil {
			f.Event, f.Err = nil, &DecoderPanicError{r.Stream, r.Revision, r.Type, v}
		}
	}()
	if f.Event, f.Err = c.Decode(r); f.Err != nil {
		f.Event = nil
		return f
	}
	if err := json.Unmarshal(r.Meta, &f.Details); err != nil {
		f.Event, f.Err = nil, fmt.Errorf("decode metadata at %d of %s: %w", r.Revision, r.Stream, err)
		return f
	}
	if step := f.Details.Schema; step > c.steps[r.Type].Last() {
		f.Event, f.Err = nil, &UnknownEventError{Stream: r.Stream, Type: r.Type, Step: step}
		return f
	}
	if e, is := f.Event.(interface{ IsStray(revision int64) bool }); is && e.IsStray(int64(r.Revision)) {
		f.Event = PassedOver{}
	}
	return f
}

// marshal is json.Marshal without the escapes for HTML, which would swell customer text.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// metadataPrefix begins the name of the stream that holds the metadata of another one.
const metadataPrefix = "$$"

// MetadataWritten is the decoded event that metadata of a stream of ours was written, which may hide events of it. The
// service writes it to truncate an identity and to restore a stream; everything else is somebody else's.
type MetadataWritten struct {
	// Stream is the one that the metadata is of.
	Stream string
	// TruncatedBefore is the revision before which events are hidden, 0 for none, SoftDeleted for all.
	TruncatedBefore Revision
	// Aged and Counted report that the store hides events by their age, and more than a number of them.
	Aged, Counted bool
}

// SoftDeleted is MetadataWritten.TruncatedBefore of a stream that was soft-deleted.
const SoftDeleted Revision = math.MaxInt64

func (MetadataWritten) EventType() string { return MetadataType }

// MetadataOf decodes the metadata of a stream of ours. ok is false for another event. Fields that a store would not
// take for a limit are none.
func MetadataOf(r Recorded) (m *MetadataWritten, ok bool) {
	name, found := strings.CutPrefix(r.Stream, metadataPrefix)
	if r.Type != MetadataType || !found || !stream.IsOurs(name) {
		return nil, false
	}
	var fields struct {
		TruncatedBefore json.Number     `json:"$tb"`
		MaxAge          json.RawMessage `json:"$maxAge"`
		MaxCount        json.RawMessage `json:"$maxCount"`
	}
	m = &MetadataWritten{Stream: name}
	if json.Unmarshal(r.Data, &fields) != nil {
		return m, true
	}
	if before, err := fields.TruncatedBefore.Int64(); err == nil {
		m.TruncatedBefore = Revision(before)
	}
	m.Aged, m.Counted = isSet(fields.MaxAge), isSet(fields.MaxCount)
	return m, true
}

func isSet(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// LeafOwner returns what the leaf of the event belongs to: an organization, or a project, whose organization it is.
// Both are zero for an event of none. It follows from the stream and the stored bytes alone, so it is the same whether
// the event can be decoded or is set aside, and in every version of the program.
func (f DecodedEvent) LeafOwner() (organization, project uuid.UUID) {
	category := stream.Category(f.Stream)
	switch category {
	case stream.Registry, stream.Pipeline, stream.Person, stream.Address:
		return uuid.Nil, uuid.Nil
	case stream.Organization, stream.Visits, stream.Audit:
		return stream.Owner(f.Stream), uuid.Nil
	}
	if f.Event != nil && !f.IsPassedOver() && category != stream.Offer && category != stream.Records {
		return uuid.Nil, event.ProjectOf(f.Event)
	}
	var named struct {
		OrganizationID uuid.UUID `json:"organizationId"`
		ProjectID      uuid.UUID `json:"projectId"`
	}
	if json.Unmarshal(f.Data, &named) != nil {
		return uuid.Nil, uuid.Nil
	}
	if category == stream.Offer || category == stream.Records {
		return named.OrganizationID, uuid.Nil
	}
	return uuid.Nil, named.ProjectID
}
