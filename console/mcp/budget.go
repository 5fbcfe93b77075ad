package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/shorten"
)

const (
	// maxAsked is the most bytes of an answer of the API that a tool holds.
	maxAsked = 1 << 20
	// certain is a number of bytes of which an answer is never shown whole: a character has at most four.
	certain = 4 * maxStructured
	// decodedBytes is the most memory of a byte of JSON once it is decoded: "{}," becomes a map of 64 bytes.
	decodedBytes = 24
)

// limits are those of fit, which shortens what has more than certain bytes.
var limits = shorten.Limits{
	Whole: certain, Most: maxAsked, Text: maxString, Value: maxValues, Entries: maxEntries,
}

// reservations are those of one request. They are released once its answer is written and its tool has ended, which may
// be after the caller has left.
type reservations struct {
	mu    sync.Mutex
	users int
	holds []*allowance.Hold
}

// use keeps the reservations until done is called.
func (r *reservations) use() (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.users--; r.users == 0 {
			r.release()
		}
	}
}

func (r *reservations) release() {
	for _, h := range r.holds {
		h.Release()
	}
	r.holds = nil
}

// drop releases them for an answer that takes the place of the one before.
func (r *reservations) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release()
}

func (r *reservations) add(h *allowance.Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = append(r.holds, h)
}

// do calls the API, and decodes what a tool can show of the answer. Its memory is reserved until the request ends.
func (s *Service) do(
	ctx context.Context, p auth.Principal, call httpx.InnerCall,
) (answer object, o omitted, err error) {
	text := shorten.New(ctx, limits)
	call.As, call.To, call.Values = p, text, httpx.Values{Total: certain, Each: 4 * maxValues}
	answered, err := s.API.Do(ctx, call)
	if err != nil {
		return nil, o, err
	}
	o.Counts = map[string]int{}
	for _, counts := range []map[string]int{answered.LeftOut, text.LeftOut()} {
		for name, n := range counts {
			o.Counts[name] += n
		}
	}
	body := text.Bytes()
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, o, nil
	}
	hold, err := s.API.Reserve(ctx, p, decodedBytes*int64(len(body)))
	callOf(ctx).reserved.add(hold)
	if err != nil {
		return nil, o, err
	}
	answer, err = decode(ctx, body)
	return answer, o, err
}

// decode reads an answer of the API. Numbers stay as they are written, and metadata and traits as their JSON.
func decode(ctx context.Context, body []byte) (object, error) {
	r := reader{ctx: ctx, Decoder: json.NewDecoder(bytes.NewReader(body))}
	r.UseNumber()
	v, err := r.value("")
	if err != nil {
		return nil, err
	}
	o, ok := v.(object)
	if !ok {
		return nil, fmt.Errorf("the answer of the API is no object")
	}
	return o, nil
}

// reader decodes an answer while its context lasts.
type reader struct {
	*json.Decoder

	ctx    context.Context //nolint:containedctx // of the one answer
	values int
}

// value reads the value of a member, or of an entry, whose name is "".
func (r *reader) value(name string) (any, error) {
	const between = 256 // looks at the context
	if r.values++; r.values%between == 0 && r.ctx.Err() != nil {
		return nil, r.ctx.Err()
	}
	if shorten.IsValue(name) {
		var raw json.RawMessage
		if err := r.Decode(&raw); err != nil || string(raw) == "null" {
			return nil, err
		}
		return raw, nil
	}
	token, err := r.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		o := object{}
		for r.More() {
			member, err := r.Token()
			if err != nil {
				return nil, err
			}
			name, _ := member.(string)
			if o[name], err = r.value(name); err != nil {
				return nil, err
			}
		}
		_, err = r.Token()
		return o, err
	case json.Delim('['):
		list := []any{}
		for r.More() {
			entry, err := r.value("")
			if err != nil {
				return nil, err
			}
			list = append(list, entry)
		}
		_, err = r.Token()
		return list, err
	}
	return token, nil
}

// printed is a value as the text shows it: metadata and traits are decoded now, and fit left no long ones.
func printed(v any) any {
	raw, ok := v.(json.RawMessage)
	if !ok {
		return v
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return string(raw) // it came from JSON, so this does not happen
	}
	return value
}
