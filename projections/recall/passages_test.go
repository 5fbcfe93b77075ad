package recall_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/memory"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/explained"
	"github.com/annals-project/annals/projections/recall/recalltest"
	"github.com/annals-project/annals/projections/recallindex"
)

const (
	spareKey    = "By the way, the spare key is under the blue crate."
	askSpareKey = "Where is the spare key?"
)

// longLog returns a text of about 450 KB with one line in it.
func longLog(line string) string {
	var b strings.Builder
	for n := range 9000 {
		if n == 7411 {
			b.WriteString(line + "\n")
			continue
		}
		_, _ = fmt.Fprintf(&b, "%d Pump reading normal, pressure 4 bar, no alarm.\n", n)
	}
	return b.String()
}

// chatDay returns a day of a chat, about 48 KB, with one line in it.
func chatDay(line string) string {
	var b strings.Builder
	for n := range 700 {
		_, _ = fmt.Fprintf(&b, "%02d:%02d Ben: we talked about ropes, sails and tea, part %d\n", 8+n/60, n%60, n)
		if n == 500 {
			b.WriteString("16:20 Ana: " + line + "\n")
		}
	}
	return b.String()
}

// checkPassage checks that a result is a passage of a text, in the form of a memory, and returns its number.
func checkPassage(t *testing.T, h *recalltest.Harness, r recall.Result, sourceID, text string, revision int) int {
	t.Helper()
	node, number := datapoint.NodeID(h.DataPoint(sourceID), revision), -1
	for n, span := range domainrecall.Numbered(text) {
		if strings.TrimSpace(text[span.Start:span.End]) == r.Content {
			number = n
			if datapoint.PassageID(node, n) == r.ID {
				break
			}
		}
	}
	source := r.Sources[0]
	if number < 0 || r.ID != datapoint.PassageID(node, number) || r.Artifact.ID != r.ID ||
		r.Artifact.Kind != memory.Observation || r.Artifact.SupersededAt != nil ||
		!r.Artifact.OccurredAt.Equal(r.OccurredAt) || utf8.RuneCountInString(r.Content) > 2000 {
		t.Fatalf("passage %d: %+v", number, r)
	}
	if source.SourceID != sourceID || !source.OccurredAt.Equal(r.OccurredAt) || len(source.Excerpts) != 1 ||
		!strings.Contains(r.Content, source.Excerpts[0]) || utf8.RuneCountInString(source.Excerpts[0]) > 300 {
		t.Fatalf("source %+v", source)
	}
	return number
}

// checkTokens checks that a response counts contents and excerpts, within its budget.
func checkTokens(t *testing.T, page recall.Response, budget int) {
	t.Helper()
	sum := 0
	for i, r := range page.Results {
		sum += domainrecall.Tokens(r.Content, r.Sources[0].Excerpts...)
		if r.Rank < 1 || r.Rank > len(page.Results) {
			t.Errorf("result %d has rank %d", i, r.Rank)
		}
	}
	if sum != page.UsedEvidenceTokens || sum > budget {
		t.Errorf("%d tokens used, %d counted, budget %d", page.UsedEvidenceTokens, sum, budget)
	}
}

func TestPassages_OneLineOfALongText(t *testing.T) {
	for name, text := range map[string]string{"log": longLog(spareKey), "chat": chatDay(spareKey)} {
		for _, big := range []bool{false, true} {
			h := recalltest.New(t, nil)
			h.Send(recalltest.DataPoint{
				ID: "long", Content: text, Label: "Talk", OccurredAt: at(12), Big: big, Metadata: metadataOf(20),
			})
			for n := range 30 {
				h.Send(recalltest.DataPoint{ID: fmt.Sprint(n), Content: fmt.Sprint("Keys are made of brass, part ", n), OccurredAt: at(2)})
			}
			h.CatchUp()
			blobs := &counter{Harness: h}
			config := h.Config()
			config.Blobs = blobs
			service := recall.New(config)
			for _, budget := range []int{8000, 600, 32000} {
				blobs.bytes.Store(0)
				q := h.Ask(askSpareKey)
				q.Budget = budget
				page, err := service.Recall(t.Context(), q)
				if err != nil || len(page.Results) == 0 {
					t.Fatalf("%s, %d tokens: %d results, %v", name, budget, len(page.Results), err)
				}
				checkTokens(t, page, budget)
				at := slices.IndexFunc(page.Results, func(r recall.Result) bool { return r.Sources[0].SourceID == "long" })
				if at < 0 {
					t.Fatalf("%s, blob %t, %d tokens: the text is not found", name, big, budget)
				}
				r := page.Results[at]
				if name == "chat" && budget == 32000 {
					equal(t, "kind", r.Artifact.Kind, recall.KindSource)
					continue
				}
				checkPassage(t, h, r, "long", text, 1)
				if !strings.Contains(r.Sources[0].Excerpts[0], "spare key is under the blue crate") || *r.Sources[0].Label != "Talk" ||
					len(r.Sources[0].Metadata) != 20 || strings.Contains(r.Sources[0].Excerpts[0], "\n") {
					t.Errorf("%s: excerpt %+v", name, r.Sources[0])
				}
				// The text is read once, and so is the metadata.
				if read := blobs.bytes.Load(); big && read != int64(len(text)+20) || !big && read != 0 {
					t.Errorf("%s, %d tokens: %d bytes of blobs read, the text has %d", name, budget, read, len(text))
				}
			}
			q := h.Ask(askSpareKey)
			q.Budget = 100
			for _, r := range h.Recall(q).Results {
				if r.Sources[0].SourceID == "long" {
					t.Errorf("%s: a passage in %d tokens: %+v", name, q.Budget, r)
				}
			}
		}
	}
}

// A text that the budget holds, but not what other texts left of it, has passages, too: each source at most three, and
// only while they fit.
func TestPassages_InWhatIsLeft(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 6 {
		var b strings.Builder
		for part := range 12 {
			_, _ = fmt.Fprintf(&b, "Helix, part %d of %d. %s\n\n", part, n, strings.Repeat("Some words about editors. ", 35))
		}
		h.Send(recalltest.DataPoint{ID: fmt.Sprint("book", n), Content: b.String(), OccurredAt: at(1 + n), Big: n%2 == 0})
	}
	h.CatchUp()
	page := h.Recall(h.Ask("helix editors"))
	checkTokens(t, page, 8000)
	kinds := map[string]int{}
	perSource := map[string]int{}
	for _, r := range page.Results {
		kinds[r.Artifact.Kind]++
		perSource[r.Sources[0].SourceID]++
	}
	if kinds[recall.KindSource] != 2 || kinds[memory.Observation] < 4 || page.UsedEvidenceTokens < 7500 {
		t.Errorf("%d tokens of %v", page.UsedEvidenceTokens, kinds)
	}
	for id, n := range perSource {
		if n > domainrecall.PassagesOfSource {
			t.Errorf("%s has %d results", id, n)
		}
	}
}

func TestPassages_Gate(t *testing.T) {
	h := recalltest.New(t, nil)
	text, team := longLog(spareKey), uuid.New()
	for _, big := range []bool{false, true} {
		id := fmt.Sprint("long", big)
		h.Send(recalltest.DataPoint{ID: id, Content: text, OccurredAt: at(12), Audience: team, Big: big})
	}
	h.CatchUp()
	from, to, before := at(13), at(11), at(11)
	for name, change := range map[string]func(q *recall.Query){
		"another viewer": func(q *recall.Query) { q.Audiences = []uuid.UUID{uuid.Nil, uuid.New()} },
		"from":           func(q *recall.Query) { q.From = &from },
		"to":             func(q *recall.Query) { q.To = &to },
		"perspective":    func(q *recall.Query) { q.At = &before },
	} {
		q := h.Ask(askSpareKey)
		q.Audiences = append(q.Audiences, team)
		change(&q)
		equal(t, name, len(h.Recall(q).Results), 0)
	}
	q := h.Ask(askSpareKey)
	q.Audiences = append(q.Audiences, team)
	page := h.Recall(q)
	for _, r := range page.Results {
		checkPassage(t, h, r, r.Sources[0].SourceID, text, 1)
	}
	equal(t, "results of the team", len(page.Results), 2)
	q.Limit = 1
	equal(t, "results with limit 1", len(h.Recall(q).Results), 1)
	q.Limit = 100
	h.Delete("longtrue")
	h.CatchUp("datapoints", "memories") // the index still has it
	page = h.Recall(q)
	if len(page.Results) != 1 || page.Results[0].Sources[0].SourceID != "longfalse" {
		t.Errorf("after the deletion: %+v", contents(page))
	}
}

// Passages are those of the newest revision, whatever revision the index has.
func TestPassages_NewRevision(t *testing.T) {
	for _, big := range []bool{false, true} {
		h := recalltest.New(t, nil)
		h.Send(recalltest.DataPoint{ID: "long", Content: longLog(spareKey), OccurredAt: at(12), Big: big})
		h.CatchUp()
		moved := "Note: the spare key hangs behind the door now."
		text := strings.Repeat("Nothing new on the quay.\n", 300) + longLog(moved)
		h.Send(recalltest.DataPoint{ID: "long", Content: text, OccurredAt: at(13), Big: big})
		for _, stage := range [][]string{{"datapoints", "memories"}, {"recallindex"}} {
			h.CatchUp(stage...)
			page := h.Recall(h.Ask(askSpareKey))
			if big && stage[0] == "datapoints" {
				equal(t, "results", len(page.Results), 0) // a text in a blob is not ranked until it is indexed
				continue
			}
			if len(page.Results) != 1 || page.Results[0].Sources[0].Excerpts[0] != moved {
				t.Fatalf("blob %t, after %s: %+v", big, stage, page.Results)
			}
			checkPassage(t, h, page.Results[0], "long", text, 2)
		}
	}
}

func TestPassages_Chronological(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "long", Content: chatDay(spareKey), OccurredAt: at(12)})
	h.Send(recalltest.DataPoint{ID: "late", Content: "The spare key is lost.", OccurredAt: at(20)})
	h.Send(recalltest.DataPoint{ID: "early", Content: "The spare key is new.", OccurredAt: at(2)})
	h.CatchUp()
	q := h.Ask(askSpareKey)
	q.Chronological = true
	page, order := h.Recall(q), []string{}
	for _, r := range page.Results {
		order = append(order, r.Sources[0].SourceID)
	}
	equal(t, "order", order, []string{"early", "long", "late"})
	checkTokens(t, page, 8000)
}

// A memory that has the words of the question is shown alone; of one without them a passage shows the rest.
func TestPassages_BesidesMemories(t *testing.T) {
	for excerpt, want := range map[string][]string{
		spareKey:                          {memory.Claim},
		"the spare key is under the blue": {memory.Claim, memory.Observation},
	} {
		h := recalltest.New(t, nil)
		text := chatDay(spareKey)
		h.Send(recalltest.DataPoint{ID: "long", Content: text, OccurredAt: at(12)})
		h.Derive("long", 1, at(12), false, recalltest.Line{Kind: memory.Claim, Content: "The spare key is there.", Excerpt: excerpt})
		h.CatchUp()
		page, kinds := h.Recall(h.Ask("Is the spare key under the crate?")), []string{}
		for _, r := range page.Results {
			kinds = append(kinds, r.Artifact.Kind)
		}
		equal(t, excerpt, kinds, want)
	}
}

// The index may have a passage that the text has not, if it lags or was built otherwise.
func TestPassages_UnknownNumber(t *testing.T) {
	h := recalltest.New(t, nil)
	text := chatDay(spareKey)
	h.Send(recalltest.DataPoint{ID: "long", Content: text, OccurredAt: at(12)})
	h.CatchUp()
	hit := func(n, count int) recallindex.Hit {
		return recallindex.Hit{
			Key:    recallindex.Key{DataPoint: h.DataPoint("long"), Revision: 1, N: n},
			Counts: []domainrecall.Count{{Text: count}, {Text: count}}, Length: 100,
		}
	}
	config := h.Config()
	config.Index = fixed{h.Index, []recallindex.Hit{hit(900, 9), hit(3, 1), hit(1<<40, 5)}}
	page, err := recall.New(config).Recall(t.Context(), h.Ask(askSpareKey))
	if err != nil || len(page.Results) != 1 {
		t.Fatalf("%d results, %v", len(page.Results), err)
	}
	equal(t, "number", checkPassage(t, h, page.Results[0], "long", text, 1), 3)
}

// near finds one data point by its meaning.
type near struct{ id uuid.UUID }

func (n near) Find(context.Context, embeddings.Query, string) *embeddings.Found {
	return &embeddings.Found{Hits: []embeddings.Hit{{DataPoint: n.id, Revision: 1, Similarity: 3, Window: 3}}}
}

// A text that only its meaning makes a candidate is shown by its first passage.
func TestPassages_ByMeaningAlone(t *testing.T) {
	h := recalltest.New(t, nil)
	text := chatDay(spareKey)
	h.Send(recalltest.DataPoint{ID: "long", Content: text, OccurredAt: at(12)})
	h.CatchUp()
	config := h.Config()
	config.Semantic = near{h.DataPoint("long")}
	page, err := recall.New(config).Recall(t.Context(), h.Ask("zebra"))
	if err != nil || len(page.Results) != 1 {
		t.Fatalf("%d results, %v", len(page.Results), err)
	}
	equal(t, "number", checkPassage(t, h, page.Results[0], "long", text, 1), 0)
}

func TestPassages_Explained(t *testing.T) {
	h := recalltest.New(t, nil)
	h.Send(recalltest.DataPoint{ID: "long", Content: chatDay(spareKey), OccurredAt: at(12)})
	h.Send(recalltest.DataPoint{ID: "short", Content: "The spare key is new.", OccurredAt: at(2)})
	h.CatchUp()
	q := h.Ask(askSpareKey)
	s := lost(t, h, q, "long", explained.Returned, "by a passage of it")
	page, e := h.Recall(q), explain(t, h.Service(), q)
	if s.Rank == 0 || s.Rank > len(page.Results) {
		t.Errorf("rank %d", s.Rank)
	}
	for i, r := range e.Results {
		equal(t, "id", r.ID, page.Results[i].ID)
		equal(t, "kind", r.Kind, page.Results[i].Artifact.Kind)
		equal(t, "tokens", r.Tokens, domainrecall.Tokens(page.Results[i].Content, page.Results[i].Sources[0].Excerpts...))
		checkScore(t, r)
	}
	q.Budget = 150
	lost(t, h, q, "long", explained.OverBudget, "were left, also too few for a passage")
	q.Limit = 1
	lost(t, h, q, "long", explained.RankedBelow, "the limit of 1 is reached")
}

// Many long texts fill a response by their passages, the best ones first, and the search does not go on.
func TestPassages_ManyLongTexts(t *testing.T) {
	h := recalltest.New(t, nil)
	for n := range 120 {
		h.Send(recalltest.DataPoint{
			ID: fmt.Sprint(n), Content: chatDay(fmt.Sprintf("the spare key number %d is under the crate.", n)), OccurredAt: at(1 + n%20),
			Big: n%10 == 0,
		})
	}
	h.CatchUp()
	index := &counting{Index: h.Index}
	config := h.Config()
	config.Index = index
	q := h.Ask("spare key crate")
	began := time.Now()
	page, err := recall.New(config).Recall(t.Context(), q)
	if err != nil || index.searches.Load() != 1 {
		t.Fatalf("%d searches, %v", index.searches.Load(), err)
	}
	t.Logf("%d results, %d tokens in %s", len(page.Results), page.UsedEvidenceTokens, time.Since(began))
	checkTokens(t, page, q.Budget)
	if page.UsedEvidenceTokens < q.Budget*9/10 {
		t.Errorf("%d tokens in %d results", page.UsedEvidenceTokens, len(page.Results))
	}
}

// The bytes of a text that is read for its passages are reserved while it is read; those of the passages remain
// reserved.
func TestPassages_ReservesWhatItReads(t *testing.T) {
	h := recalltest.New(t, nil)
	text := longLog(spareKey)
	h.Send(recalltest.DataPoint{ID: "long", Content: text, OccurredAt: at(12), Big: true})
	h.CatchUp()
	answers := allowance.New(allowance.Config{
		Total: int64(2 * len(text)), Share: int64(2 * len(text)), Wait: time.Millisecond, Waiters: 1,
	})
	hold := answers.Open(allowance.Owner{Organization: uuid.New()})
	page, err := h.Service().Recall(allowance.NewContext(t.Context(), hold), h.Ask(askSpareKey))
	if err != nil || len(page.Results) != 1 {
		t.Fatalf("%d results, %v", len(page.Results), err)
	}
	if held := hold.Held(); held < int64(len(page.Results[0].Content)) || held > 4096 {
		t.Errorf("%d bytes stay reserved", held)
	}
	other := answers.Open(allowance.Owner{Organization: uuid.New()})
	if err := other.Reserve(t.Context(), int64(len(text))); err != nil {
		t.Fatal(err)
	}
	_, err = h.Service().Recall(allowance.NewContext(t.Context(), hold), h.Ask(askSpareKey))
	if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Unavailable {
		t.Errorf("without room: %v", err)
	}
}
