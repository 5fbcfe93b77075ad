package webtest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
)

// furnisher fills a project. Every text, id, label, trait and name ends in mark.
type furnisher struct {
	T    testing.TB
	ctx  context.Context
	c    *client.Client
	mark string
}

var colleagues = []string{"ana", "ben", "chloe", "dev", "emil", "fatima"}

// Furnish fills a project with what a small team has after a while, so that no page is empty: texts of several authors
// and audiences, revisions, a deletion, recalls, refused calls, and two other projects. All that a customer names ends
// in mark, which may be markup. c has a key of the project, m the management key.
func Furnish(t testing.TB, c, m *client.Client, mark string) {
	t.Helper()
	f := furnisher{t, t.Context(), c, mark}
	f.identities()
	f.texts()
	f.recalls()
	for _, name := range []string{"Support desk", "Old pilot"} {
		_, err := m.CreateProject(f.ctx, client.NewProject{Name: name + mark})
		runtest.Must(t, err)
	}
}

func (f furnisher) identities() {
	f.T.Helper()
	teams := []string{"launch", "sales", "support"}
	for i, name := range colleagues {
		_, err := f.c.PutIdentity(f.ctx, client.IdentityRow{Identity: name + f.mark, Traits: map[string]string{
			"team": teams[i%3] + f.mark, "country": []string{"de", "fr", "in"}[i%3], "level": fmt.Sprint(1 + i%4), "note" + f.mark: "x",
		}})
		runtest.Must(f.T, err)
	}
	for _, a := range []client.AudiencePut{
		{Slug: "launch", Name: "Launch team" + f.mark, Kind: client.AudienceRule, Rule: &client.Rule{
			Match: client.MatchAll,
			Conditions: []client.Condition{
				{Trait: "team", Operator: client.OperatorIs, Values: []string{"launch" + f.mark}},
			},
		}},
		{Slug: "board", Name: "Board" + f.mark, Kind: client.AudienceFixed, Identities: []string{"ana" + f.mark, "fatima" + f.mark}},
	} {
		_, err := f.c.PutAudience(f.ctx, a)
		runtest.Must(f.T, err)
	}
}

// point is a data point whose texts end in the mark.
func (f furnisher) point(id, label, author, at, content, audience string) client.DataPoint {
	metadata, err := json.Marshal(map[string]string{"channel": "phone" + f.mark})
	runtest.Must(f.T, err)
	return client.DataPoint{
		ID: id + f.mark, Label: label + f.mark, Identity: author + f.mark, Timestamp: at, Content: content + f.mark,
		Audience: audience, Metadata: metadata,
	}
}

func (f furnisher) texts() {
	f.T.Helper()
	texts := []client.DataPoint{
		f.point("call-2025-05-12", "Planning call", "ana", "2025-05-12T09:30:00Z",
			"Ana moved the launch to 3 June 2025. Never deploy on Fridays.", ""),
		f.point("budget", "Budget", "ana", "2025-05-13T10:00:00Z",
			"The launch may cost 40,000 euros. Ana approves every invoice above 1,000 euros.", "launch"),
		f.point("board-minutes", "Minutes of the board", "fatima", "2025-05-14T16:00:00Z",
			"The board approved the budget of the launch. Fatima prefers monthly reports.", "board"),
		f.point("editor", "Tools", "ben", "2025-05-15T08:15:00Z", "My favourite editor is Helix. I live in Lyon.", ""),
		f.point("ticket-8820", "Ticket 8820", "chloe", "2025-05-16T12:00:00Z",
			"Acme cannot sign in since the last update. They use the old client 1.4. The workaround is to clear the cache.", ""),
		f.point("lunch", "Lunch", "emil", "2025-05-17T11:00:00Z", "Emil is allergic to peanuts.", ""),
	}
	for i := range 24 {
		n := i + 1
		content := fmt.Sprintf("Customer %d asked for an offer about %d seats. The offer is due on %d July 2025.", n, 10*n, n)
		texts = append(texts, f.point(fmt.Sprintf("note-%02d", n), fmt.Sprintf("Note %d", n), colleagues[i%len(colleagues)],
			fmt.Sprintf("2025-06-%02dT09:00:00Z", n), content, ""))
	}
	_, err := f.c.IngestBatch(f.ctx, client.Batch{Items: texts})
	runtest.Must(f.T, err)
	moved := texts[0]
	moved.Content = "Ana moved the launch to 10 June 2025. Never deploy on Fridays." + f.mark
	receipt, err := f.c.Ingest(f.ctx, moved)
	runtest.Must(f.T, err)
	_, err = f.c.WaitSettled(f.ctx, receipt.IngestionID, nil)
	runtest.Must(f.T, err)
	_, err = f.c.DeleteDataPoint(f.ctx, "lunch"+f.mark)
	runtest.Must(f.T, err)
}

func (f furnisher) recalls() {
	f.T.Helper()
	for _, q := range [][2]string{
		{"When is the launch?", "ben"},
		{"What may the launch cost?", "ana"},
		{"What may the launch cost?", "ben"},
		{"Which editor does Ben use?", "dev"},
	} {
		_, err := f.c.Recall(f.ctx, client.RecallRequest{Query: q[0] + f.mark, Identity: q[1] + f.mark, Limit: 5})
		runtest.Must(f.T, err)
	}
	if _, err := f.c.Recall(f.ctx, client.RecallRequest{Query: " ", Identity: "ben"}); err == nil {
		f.T.Fatal("a blank question was answered")
	}
}
