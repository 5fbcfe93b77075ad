package model

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/domain/comprehend"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
)

// Extractor extracts the memories of a revision with a chat model. It leaves out a memory that does
// not cite its source word for word, or that is of an unknown kind.
type Extractor struct {
	endpoint Endpoint
	client   *http.Client
}

var _ pipeline.Extractor = (*Extractor)(nil)

// NewExtractor makes an extractor. It does not call the endpoint.
func NewExtractor(endpoint Endpoint) (*Extractor, error) {
	if err := endpoint.Validate(); err != nil {
		return nil, err
	}
	return &Extractor{endpoint: endpoint, client: endpoint.client()}, nil
}

// promptVersion is raised with every change of the prompt or the schema.
const promptVersion = "1"

// Name implements pipeline.Extractor.
func (x *Extractor) Name() string { return "openai/" + x.endpoint.Name + "/" + promptVersion }

// Probe makes a call as Extract does. It fails if the endpoint cannot be used.
func (x *Extractor) Probe(ctx context.Context) error {
	_, err := x.extractPart(ctx, comprehend.Input{OccurredAt: time.Unix(0, 0).UTC()}, hello)
	return unusable(err)
}

const (
	// partBytes and maxParts bound the parts of a content that the model reads. The parts of a longer
	// content are evenly spread.
	partBytes = 16 << 10
	maxParts  = 8
	// attemptTimeout bounds the calls for all parts. It is shorter than the lease of an attempt.
	attemptTimeout = 2 * time.Minute
)

// Extract implements pipeline.Extractor. A response without memories is valid.
func (x *Extractor) Extract(ctx context.Context, in comprehend.Input) ([]memory.Memory, error) {
	limited, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	read := newReading(in)
	for _, part := range parts(in.Content) {
		extracted, err := x.extractPart(limited, in, in.Content[part.start:part.end])
		if err != nil {
			if ctx.Err() == nil && limited.Err() != nil {
				return nil, unavailable("the model needed more than %s for one text", attemptTimeout)
			}
			return nil, err
		}
		for _, statement := range extracted.Memories {
			read.add(statement, part)
		}
	}
	return read.memories, nil
}

// span is a part of the content, in bytes.
type span struct{ start, end int }

// parts splits a content at line ends and spaces, and returns at most maxParts parts, evenly spread.
func parts(content string) []span {
	n := (len(content) + partBytes - 1) / partBytes
	count := min(n, maxParts)
	list := make([]span, 0, count)
	for i := range count {
		first := i * n / count
		s := span{boundary(content, first*partBytes), boundary(content, (first+1)*partBytes)}
		if strings.TrimSpace(content[s.start:s.end]) != "" {
			list = append(list, s)
		}
	}
	return list
}

// boundary returns the start of a word at or shortly before a byte of the content.
func boundary(content string, at int) int {
	if at >= len(content) {
		return len(content)
	}
	const back = 512
	low := max(0, at-back)
	if i := strings.LastIndexByte(content[low:at], '\n'); i >= 0 {
		return low + i + 1
	}
	if i := strings.LastIndexByte(content[low:at], ' '); i >= 0 {
		return low + i + 1
	}
	for at > 0 && content[at]&0xC0 == 0x80 {
		at--
	}
	return at
}

// statement is a memory as the model returns it.
type statement struct {
	Kind      string   `json:"kind"`
	Content   string   `json:"content"`
	Excerpt   string   `json:"excerpt"`
	Subject   string   `json:"subject"`
	Attribute string   `json:"attribute"`
	Entities  []string `json:"entities"`
	From      string   `json:"from"`
	To        string   `json:"to"`
}

type extracted struct {
	Memories []statement `json:"memories"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type completion struct {
	Choices []struct {
		FinishReason string `json:"finish_reason"`
		Message      struct {
			Content *string `json:"content"`
			Refusal *string `json:"refusal"`
		} `json:"message"`
	} `json:"choices"`
}

// extractPart calls the model for the memories of one part.
func (x *Extractor) extractPart(ctx context.Context, in comprehend.Input, text string) (extracted, error) {
	var e extracted
	input, err := json.Marshal(map[string]any{
		"author": in.Author, "label": in.Label, "occurredAt": in.OccurredAt.Format(time.RFC3339), "text": text,
	})
	if err != nil {
		return e, err
	}
	var done completion
	err = x.endpoint.post(ctx, x.client, "/chat/completions", map[string]any{
		"model":       x.endpoint.Name,
		"messages":    []message{{"system", instructions}, {"user", string(input)}},
		"temperature": 0,
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{
			"name": "memories", "strict": true, "schema": json.RawMessage(schema),
		}},
	}, &done)
	if err != nil {
		return e, err
	}
	if len(done.Choices) == 0 || done.Choices[0].Message.Content == nil {
		return e, unreadable("the response of the model has no message")
	}
	if done.Choices[0].FinishReason == "length" {
		return e, unreadable("the response of the model was cut off")
	}
	if err := decodeMessage(*done.Choices[0].Message.Content, &e); err != nil {
		return e, unreadable("the message of the model is not the expected JSON")
	}
	return e, nil
}

// decodeMessage decodes the message, which some endpoints put into a code block.
func decodeMessage(text string, e *extracted) error {
	text = strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(text, "```"); ok {
		inner = strings.TrimPrefix(inner, "json")
		text = strings.TrimSuffix(strings.TrimSpace(inner), "```")
	}
	var shape struct {
		Memories *[]statement `json:"memories"`
	}
	if err := json.Unmarshal([]byte(text), &shape); err != nil {
		return err
	}
	if shape.Memories == nil {
		return errNoMemories
	}
	e.Memories = *shape.Memories
	return nil
}

// sourceOf returns the node that all memories of a revision are derived from.
func sourceOf(in comprehend.Input) uuid.UUID { return datapoint.NodeID(in.DataPoint, in.Revision) }
