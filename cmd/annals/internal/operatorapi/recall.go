package operatorapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/secret"
	"github.com/annals-project/annals/projections/recall/explained"
)

// ExplainRecall explains how a recall is answered, and where sources were lost.
var ExplainRecall = Operation[explained.Request, explained.Explanation]{http.MethodPost, "/operator/recall/explain"}

// NewExplainRequest returns the request for a recall, in the project of a key.
func NewExplainRequest(q client.RecallRequest, key string, sourceIDs []string) (explained.Request, error) {
	in := explained.Request{SourceIDs: sourceIDs}
	if key != "" {
		hash := secret.Hash(key)
		in.KeyHash = hash[:]
	}
	var err error
	if in.Recall, err = json.Marshal(q); err != nil {
		return in, fmt.Errorf("encode query: %w", err)
	}
	return in, nil
}

// ExplainRoute returns the route of ExplainRecall.
func ExplainRoute(by explained.Explainer) Route { return ExplainRecall.Serve(by.Explain) }
