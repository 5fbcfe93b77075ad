package operatorapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/reads/shown"
)

// ShowRead shows what a request was shown, as the log has it.
var ShowRead = Operation[ShowReadRequest, shown.Shown]{http.MethodPost, "/operator/audit/show"}

// ShowReadRequest names a part of the record of a request, and the first of its texts.
type ShowReadRequest struct {
	Request uuid.UUID `json:"request"`
	Part    int       `json:"part,omitempty"`
	From    int       `json:"from,omitempty"`
}

const (
	// shownTexts is how many texts an answer has, and shownBytes the most of each, so that it stays below maxAnswer.
	shownTexts = 100
	shownBytes = 20 << 10
)

// ShowReadRoute returns the route of ShowRead.
func ShowReadRoute(by shown.Reader) Route {
	return ShowRead.Serve(func(ctx context.Context, in ShowReadRequest) (shown.Shown, error) {
		if in.Part < 0 || in.From < 0 {
			return shown.Shown{}, Refuse("a part and a text have numbers from 0 on")
		}
		return by.Read(ctx, shown.Query{
			Request: in.Request, Part: in.Part, From: in.From, Count: shownTexts, Bytes: shownBytes,
		})
	})
}
