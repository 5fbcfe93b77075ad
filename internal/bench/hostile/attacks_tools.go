package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/annals-project/annals/internal/hostiletest"
)

const (
	// toolCallers call at once. Those of odd numbers leave after toolPatience.
	toolCallers  = 20
	toolPatience = 4 * time.Second
	// toolDocuments have the most metadata each.
	toolDocuments = 18
	// toolAdds is the most memory that the calls add to the service.
	toolAdds = 200 << 20
	// toolTimes is how many times as long as during the same calls for plain documents a recall of the neighbour takes.
	toolTimes = 3
)

// prepareTools stores documents with the metadata that takes the most memory once it is decoded, and plain ones.
func prepareTools(ctx context.Context, a *Arena) error {
	const most = 1<<20 - 64
	for n := range toolDocuments {
		for _, p := range []hostiletest.Point{
			{
				ID: fmt.Sprintf("heavy-%d", n), Content: fmt.Sprintf("Entry %d of the harbour ledger.", n),
				Metadata: hostiletest.Metadata(n, most),
			},
			{ID: fmt.Sprintf("plain-%d", n), Content: fmt.Sprintf("Night %d at the lighthouse.", n)},
		} {
			if _, err := a.must(ctx, hostiletest.Send(p)); err != nil {
				return err
			}
		}
	}
	return a.awaitSettled(ctx)
}

func runTools(ctx context.Context, a *Arena) error { return a.useRecall(ctx, "harbour ledger") }

func runPlainTools(ctx context.Context, a *Arena) error { return a.useRecall(ctx, "night lighthouse") }

// useRecall calls the tool recall with one key, many at once.
func (a *Arena) useRecall(ctx context.Context, query string) error {
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recall","arguments":`+
		`{"query":%q,"identity":"ana","limit":200}}}`, query)
	return during(ctx, a.Sizes.Hold, toolCallers, func(ctx context.Context, n int) {
		if n%2 == 1 {
			var leave context.CancelFunc
			ctx, leave = context.WithTimeout(ctx, toolPatience)
			defer leave()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Console+"/mcp", bytes.NewReader([]byte(message)))
		if err != nil {
			a.Answers.add("no call")
			return
		}
		req.Header.Set("Authorization", "Bearer "+a.Attacker.Key)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("MCP-Protocol-Version", "2025-11-25")
		_, _ = a.send(req) // what comes back is counted
	})
}
