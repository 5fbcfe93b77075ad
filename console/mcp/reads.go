package mcp

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/projections/recall"
)

// openRead begins to record what the call is shown, if its project wants that.
func (u *use) openRead(ctx context.Context) (context.Context, error) {
	if u.Reads == nil || u.p.Project.Reads == "" {
		return ctx, nil
	}
	id, err := uuid.NewV7() // until a call of the API has another
	if err != nil {
		return ctx, err
	}
	if u.read, err = u.Reads.Open(ctx, u.p, id, time.Time{}); err != nil {
		return ctx, err
	}
	u.read.Compose()
	return readlog.NewContext(ctx, u.read), nil
}

// cutRead leaves those texts in the read that are in the answer, with the parts of them that are. It returns once they
// are in the log, if the project wants that.
func (u *use) cutRead(ctx context.Context, answer object) error {
	results, isRecall := answer["results"].([]any)
	return u.read.Cut(ctx, func(texts []reads.Shown) []reads.Shown {
		switch {
		case isRecall:
			return u.leftOf(texts, results)
		case u.spans != nil:
			for i := range texts {
				texts[i].Spans = u.spans[0]
			}
		}
		return texts
	})
}

// leftOf returns the texts of a recall that are among the results of its answer.
func (u *use) leftOf(texts []reads.Shown, results []any) (left []reads.Shown) {
	ids := make([]uuid.UUID, len(results))
	for i, r := range results {
		result, _ := r.(object)
		text, _ := result["id"].(string)
		ids[i], _ = uuid.Parse(text) // the API made it
	}
	for _, s := range texts {
		for i, id := range ids {
			if id != s.Node && datapoint.PassageID(s.Node, datapoint.PassageNumber(id, s.Node)) != id {
				continue
			}
			if spans := u.spans[i]; spans != nil && isSource(results[i]) {
				s.Spans = spans
			}
			left = append(left, s)
			break
		}
	}
	return left
}

// noteParts notes which parts of a text a recall shows instead of it.
func (u *use) noteParts(result int, text string, of parts) {
	if u.read == nil {
		return
	}
	if u.spans == nil {
		u.spans = map[int][]reads.Span{}
	}
	var spans []reads.Span
	for i, at := range of.at {
		begin := byteAt(text, at)
		spans = append(spans, reads.Span{begin, begin + len(of.texts[i])})
	}
	u.spans[result] = spans
}

// isSource reports whether a result is a data point, and neither a memory nor a passage.
func isSource(r any) bool {
	result, _ := r.(object)
	artifact, _ := result["artifact"].(object)
	return artifact["kind"] == recall.KindSource
}
