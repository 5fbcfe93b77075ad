// Package webhookview reads events to try, and prints webhooks and what would become of an event.
package webhookview

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/tenants"
)

// ReadEvent reads the body of an event from a file, or from stdin for "-". It refuses one that is longer than
// a webhook takes.
func ReadEvent(name string, stdin io.Reader) (body []byte, err error) {
	in := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open the event: %w", err)
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	if body, err = io.ReadAll(io.LimitReader(in, limit.WebhookBody+1)); err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	if len(body) > limit.WebhookBody {
		return nil, fmt.Errorf("the event has more than %d bytes", limit.WebhookBody)
	}
	return body, nil
}

func stateOf(w tenants.Webhook) string {
	switch {
	case w.Deleted:
		return "deleted"
	case w.Paused:
		return "paused"
	default:
		return "active"
	}
}

// PrintList writes a list for people.
func PrintList(out io.Writer, list []tenants.Webhook) error {
	var b strings.Builder
	for _, w := range list {
		fmt.Fprintf(&b, "%s  %s  %s  %s\n", w.ID, w.CreatedAt.Format(time.DateOnly), stateOf(w), w.Name)
	}
	if len(list) == 0 {
		b.WriteString("the project has no webhooks\n")
	}
	return write(out, &b)
}

// Print writes a webhook for people.
func Print(out io.Writer, w tenants.Webhook) error {
	var b strings.Builder
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-12s %s\n", name, value)
		}
	}
	field("id", w.ID)
	field("name", w.Name)
	field("project", w.Project)
	field("state", stateOf(w))
	field("URL", w.URL)
	field("content", w.ContentPath)
	field("occurred at", cmp.Or(w.OccurredAtPath, "time of receipt"))
	field("id of", cmp.Or(w.IDPath, "each event"))
	field("audience", cmp.Or(w.Audience, "the whole project"))
	for _, f := range w.Filters {
		field("filter", f.String())
	}
	return write(out, &b)
}

// PrintTried writes a tried event for people.
func PrintTried(out io.Writer, e tenants.TriedEvent) error {
	var b strings.Builder
	if e.DroppedBy != nil {
		fmt.Fprintf(&b, "dropped by: %s\n", *e.DroppedBy)
		if e.Credits != nil {
			fmt.Fprintf(&b, "credits: %s\n", *e.Credits)
		}
		return write(out, &b)
	}
	if e.Refused != "" {
		fmt.Fprintf(&b, "it would be refused: %s\n", e.Refused)
	}
	at := "time of receipt"
	if e.OccurredAt != nil {
		at = e.OccurredAt.Format(time.RFC3339Nano)
	}
	fmt.Fprintf(&b, "ingested\n  occurred at  %s\n  id           %s\n  audience     %s\n",
		at, cmp.Or(e.ID, "that of the event"), cmp.Or(e.Audience, "the whole project"))
	if e.Credits != nil {
		fmt.Fprintf(&b, "  credits      %s\n", *e.Credits)
	}
	fmt.Fprintf(&b, "\n%s\n", e.Content)
	return write(out, &b)
}

func write(out io.Writer, text *strings.Builder) error {
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
