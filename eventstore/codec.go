package eventstore

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/annals-project/annals/domain"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/event"
)

// Codec encodes events for the store and decodes stored ones, by a catalogue.
type Codec struct {
	entries map[string]domain.Entry
}

// NewCodec returns a codec of a catalogue. It refuses a name that occurs twice, and an entry that
// does not have exactly one of New and Up.
func NewCodec(catalog []domain.Entry) (*Codec, error) {
	c := &Codec{entries: make(map[string]domain.Entry, len(catalog))}
	for _, e := range catalog {
		if _, twice := c.entries[e.Name]; twice {
			return nil, fmt.Errorf("catalogue: %s occurs twice", e.Name)
		}
		if (e.New == nil) == (e.Up == nil) {
			return nil, fmt.Errorf("catalogue: %s needs either a constructor or an upcaster", e.Name)
		}
		if e.New != nil && e.New().EventType() != e.Name {
			return nil, fmt.Errorf("catalogue: %s constructs %s", e.Name, e.New().EventType())
		}
		c.entries[e.Name] = e
	}
	return c, nil
}

// Encode makes the n-th event of a command ready to append. Its id derives from meta.CommandID and
// n.
func (c *Codec) Encode(e event.Event, n int, meta event.Meta) (Proposed, error) {
	meta.Schema = event.MetaSchema
	details, err := marshal(meta)
	if err != nil {
		return Proposed{}, fmt.Errorf("encode metadata of %s: %w", e.EventType(), err)
	}
	p := Proposed{ID: event.ID(meta.CommandID, n), Type: e.EventType(), Meta: details}
	if chunk, raw := e.(blob.Chunk); raw {
		p.Data = chunk.Data
		return p, nil
	}
	if entry, known := c.entries[p.Type]; !known || entry.New == nil {
		return Proposed{}, fmt.Errorf("encode %s: the catalogue does not write this name", p.Type)
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

// Decode decodes one recorded event, upcasting old names. An unknown name is an *UnknownEventError.
func (c *Codec) Decode(r Recorded) (event.Event, error) {
	if r.Type == blob.ChunkType {
		return blob.Chunk{Data: r.Data}, nil
	}
	name, payload := r.Type, json.RawMessage(r.Data)
	// A chain of upcasters that is longer than the catalogue goes round in circles.
	for range len(c.entries) + 1 {
		entry, known := c.entries[name]
		if !known {
			return nil, &UnknownEventError{Stream: r.Stream, Type: name}
		}
		if entry.New != nil {
			e := entry.New()
			if err := json.Unmarshal(payload, e); err != nil {
				return nil, fmt.Errorf("decode %s at %d of %s: %w", name, r.Revision, r.Stream, err)
			}
			return e, nil
		}
		newer, upcast, err := entry.Up(payload)
		if err != nil {
			return nil, fmt.Errorf("upcast %s at %d of %s: %w", name, r.Revision, r.Stream, err)
		}
		name, payload = newer, upcast
	}
	return nil, fmt.Errorf("upcast %s: the chain leads back to itself", r.Type)
}

// DecodeRecorded decodes one recorded event together with its metadata. A panic of a decoder is the
// error of that event.
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
