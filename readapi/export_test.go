package readapi

import (
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
)

// NextTable is the table of next steps as the OpenAPI document prints it.
func NextTable() string {
	var b strings.Builder
	b.WriteString("| phase | when | next |\n|---|---|---|\n")
	for _, row := range nextSteps {
		b.WriteString("| " + row.phase + " | " + strings.Join(row.when, ", ") + " | " + row.next + " |\n")
	}
	return b.String()
}

// NextSentences are the sentences of the table.
func NextSentences() (sentences []string) {
	for _, row := range nextSteps {
		sentences = append(sentences, row.next)
	}
	return sentences
}

// HasNext reports whether a row is for an error code.
func HasNext(code string) bool { return findNext(callRefused, code) != "" }

// RegisterEstimate adds the route of estimates with another wait of long ones.
func RegisterEstimate(e *echo.Echo, r rooms, wait time.Duration) {
	small, long := admission.SmallEstimates, admission.Estimates
	small.Wait, long.Wait = wait, wait
	e.POST(auth.Prefix+"/ingest/estimate", newEstimateAPI(r, small, long).post)
}

// RequestQueryOf reads the parameters of a list or histogram of calls.
var RequestQueryOf = requestQueryOf
