package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// file is a file of an estimate.
type file struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Kind    string `json:"kind,omitempty"`
}

// estimates are bodies whose cost is out of proportion to their size, for the parser of each kind. size is the
// most bytes of one file.
func estimates(size int) [][]file {
	nested := func(kind, open string) []file {
		return []file{{"nested." + kind, strings.Repeat(open, size/len(open)), kind}}
	}
	// Code points outside the BMP take the most bytes for their number, and the most escapes.
	long := strings.Repeat("\U0001f5c2", 970)
	rows := func(name, head, row string) []file {
		return []file{{long + name, head + strings.Repeat(row, min(size, 200_000)/len(row)), ""}}
	}
	equal := make([]file, 10_000)
	for n := range equal {
		equal[n] = file{"equal.md", fmt.Sprintf("# Note\n%d", n), ""}
	}
	part := "Content-Type: message/rfc822\n\n"
	return [][]file{
		nested("chat", `{"chats":{"list":[`),
		nested("records", `[{"a":`),
		nested("email", "> "),
		nested("documentation", "- - > "),
		nested("notes", "\n\n"),
		nested("transcript", "a: b\n"),
		nested("code", "func f() {"),
		nested("table", `a,"`),
		{{"page.html", strings.Repeat("<ul><li><div>", size/13), ""}},
		{{"front.md", "---\n" + strings.Repeat("a: [", size/4), ""}},
		{{"mail.eml", "From: a@example.org\n" + strings.Repeat(part, size/len(part)), ""}},
		{{"long.eml", "From: a@example.org\n\nOn " + strings.Repeat("Monday, ", size/8) + "wrote:", ""}},
		rows(".csv", "id,a\n", "1,2\n"),
		rows(".json", "[0", ",{}"),
		rows(".md", "", "# a\n"),
		equal,
	}
}

// runEstimates asks for all hostile estimates, eight at a time, and among them for small ones.
func runEstimates(ctx context.Context, a *Arena) error {
	size := int(min(16<<20, max(64<<10, a.Sizes.Hold.Seconds()/60*(16<<20))))
	var bodies [][]byte
	for _, files := range estimates(size) {
		for _, points := range []string{"full", "none"} {
			body, err := json.Marshal(map[string]any{"files": files, "points": points})
			if err != nil {
				return fmt.Errorf("encode files: %w", err)
			}
			bodies = append(bodies, body)
		}
	}
	return during(ctx, a.Sizes.Hold, 8, func(ctx context.Context, n int) {
		for i := range bodies {
			if ctx.Err() != nil {
				return
			}
			a.try(ctx, http.MethodPost, "/ingest/estimate", bodies[(i+n*len(bodies)/8)%len(bodies)])
		}
	})
}
