package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/ratelimit"
)

// eventAdmission admits events of webhooks by the terms of the plan, and by how many came in this minute. It
// implements httpx.EventAdmission.
type eventAdmission struct {
	terms  metering.PlanTerms
	events *ratelimit.Shared
}

func newEventAdmission(cfg Config, st *storage) eventAdmission {
	return eventAdmission{cfg.PlanTerms, ratelimit.NewShared(st.db, limit.WebhookEvents, nil)}
}

// Includes reports whether the plan has webhooks.
func (a eventAdmission) Includes(p auth.Principal) bool { return a.terms.Of(p.Limits.Plan).Webhooks }

// Count counts an event. Its fault is service-unavailable.
func (a eventAdmission) Count(ctx context.Context, webhookID string) (retry time.Duration, ok bool, err error) {
	retry, ok, err = a.events.Allow(ctx, webhookID)
	if err != nil {
		unavailable := fault.New(fault.Unavailable, fault.CodeServiceUnavailable,
			"the event could not be counted; send it again")
		return 0, false, fmt.Errorf("%w: %w", unavailable, err)
	}
	return retry, ok, nil
}

// withWebhooks serves events of webhooks as the API does, and everything else by the console.
func withWebhooks(api, console http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, auth.Prefix+"/webhooks/") {
			api.ServeHTTP(w, r)
			return
		}
		console.ServeHTTP(w, r)
	})
}
