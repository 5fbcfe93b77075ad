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

// Extractor asks a chat model for the memories of a revision. What it answers is checked here: a memory that does not cite its
// source word for word, or is of no known kind, is left out.
type Extractor struct {
	endpoint Endpoint
	client   *http.Client
}

var _ pipeline.Extractor = (*Extractor)(nil)

// NewExtractor makes an extractor; the endpoint is asked for the first time when there is something to read.
func NewExtractor(endpoint Endpoint) (*Extractor, error) {
	if err := endpoint.Validate(); err != nil {
		return nil, err
	}
	return &Extractor{endpoint: endpoint, client: endpoint.client()}, nil
}

// promptVersion is raised with every change of what the model is asked.
const promptVersion = "1"

// Name implements pipeline.Extractor.
func (x *Extractor) Name() string { return "openai/" + x.endpoint.Name + "/" + promptVersion }

// A content is read in parts, of which a long one gives evenly spread ones only. attemptLimit bounds all of them together:
// it is less than what the lease of an attempt lasts.
const (
	partBytes    = 16 << 10
	maxParts     = 8
	attemptLimit = 2 * time.Minute
)

// Extract implements pipeline.Extractor. An answer without memories is a good answer.
func (x *Extractor) Extract(ctx context.Context, in comprehend.Input) ([]memory.Memory, error) {
	limited, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	read := newReading(in)
	for _, part := range parts(in.Content) {
		answer, err := x.ask(limited, in, in.Content[part.start:part.end])
		if err != nil {
			if ctx.Err() == nil && limited.Err() != nil {
				return nil, unavailable("the model needed more than %s for one text", attemptLimit)
			}
			return nil, err
		}
		for _, said := range answer.Memories {
			read.add(said, part)
		}
	}
	return read.memories, nil
}

// span is a part of the content, in bytes.
type span struct{ start, end int }

// parts cuts a content at line ends and spaces into at most maxParts parts that are evenly spread over it.
func parts(content string) []span {
	n := (len(content) + partBytes - 1) / partBytes
	taken := min(n, maxParts)
	list := make([]span, 0, taken)
	for i := range taken {
		first := i * n / taken
		s := span{boundary(content, first*partBytes), boundary(content, (first+1)*partBytes)}
		if strings.TrimSpace(content[s.start:s.end]) != "" {
			list = append(list, s)
		}
	}
	return list
}

// boundary is the place at or shortly before a byte of the content where a word begins.
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

// statement is a memory as the model says it.
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

type answer struct {
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

// ask asks for the memories of one part.
func (x *Extractor) ask(ctx context.Context, in comprehend.Input, text string) (answer, error) {
	var a answer
	asked, err := json.Marshal(map[string]any{
		"author": in.Author, "label": in.Label, "occurredAt": in.OccurredAt.Format(time.RFC3339), "text": text,
	})
	if err != nil {
		return a, err
	}
	var done completion
	err = x.endpoint.post(ctx, x.client, "/chat/completions", map[string]any{
		"model":           x.endpoint.Name,
		"messages":        []message{{"system", instructions}, {"user", string(asked)}},
		"temperature":     0,
		"response_format": map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "memories", "strict": true, "schema": json.RawMessage(schema)}},
	}, &done)
	if err != nil {
		return a, err
	}
	if len(done.Choices) == 0 || done.Choices[0].Message.Content == nil {
		return a, unreadable("the answer of the model holds no message")
	}
	if done.Choices[0].FinishReason == "length" {
		return a, unreadable("the answer of the model was cut off")
	}
	if err := decodeAnswer(*done.Choices[0].Message.Content, &a); err != nil {
		return a, unreadable("the message of the model is not the JSON that was asked for")
	}
	return a, nil
}

// decodeAnswer reads the message, which some endpoints put between the marks of a code block.
func decodeAnswer(text string, a *answer) error {
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
	a.Memories = *shape.Memories
	return nil
}

// sourceOf is the node that all memories of a revision are derived from.
func sourceOf(in comprehend.Input) uuid.UUID { return datapoint.NodeID(in.DataPoint, in.Revision) }
