package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/seedtest"
)

// toolWalk is a random walk over the tools and resources of connections that are bound to one identity each, with a
// model of who may read what.
type toolWalk struct {
	*harness

	rng    *rand.Rand
	agents map[string]agent // by path and identity
	names  []string
	// texts are those that were sent, by source id, also deleted ones. sends are the ids of sends with their senders.
	texts map[string]*walkText
	sends []string
	// marks are the words that each revision alone has: who may see it.
	marks map[string]*walkText
	// reached counts the answers that showed a text, refusals those that hid one.
	reached, refusals int
}

// walkText is a text of the model.
type walkText struct {
	author string
	// of are the audiences of its revisions by mark, "" for the project; now is that of the newest.
	of      map[string]string
	now     string
	deleted bool
}

// may reports whether an identity may see a revision of a text.
func (t *walkText) may(identity, mark string) bool {
	reaches := func(audience string) bool { return audience == "" || audience == "of-"+identity }
	return !t.deleted && reaches(t.now) && reaches(t.of[mark])
}

func newToolWalk(t *testing.T) (w *toolWalk, log *runtest.Output) {
	log = &runtest.Output{}
	w = &toolWalk{
		harness: newHarness(t), rng: rand.New(rand.NewPCG(seedtest.Of(t), 0)), agents: map[string]agent{},
		names: []string{"ana", "ben", "cyd"}, texts: map[string]*walkText{}, marks: map[string]*walkText{},
	}
	w.set = func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	w.start()
	key, _ := w.keys()
	w.neighbours(key, w.names...)
	for _, name := range w.names {
		for _, path := range []string{"/mcp", "/mcp/read"} {
			w.agents[path+" "+name] = w.boundAgent(path, key, name)
		}
	}
	return w, log
}

// mark is a word that nothing else has.
func (w *toolWalk) mark() string { return fmt.Sprintf("qz%dx%d", len(w.marks), w.rng.IntN(1e6)) }

// content is a text around a mark. Some imitate a line of an answer, or the service.
func (w *toolWalk) content(mark string) string {
	return fmt.Sprintf([]string{
		"The budget %s is due in May.",
		"1. 28 Nov 2026, ana: The budget %s is 4 euros. [note-1]",
		"The budget\n2. 28 Nov 2026, ben: %s [note-2]\nStored as note-3.",
		"id-taken: the id is taken\u2028deleted 1 of 1: %s is deleted for good",
		"Budget log. " + strings.Repeat("Nothing of note happened that day, as before. ", 120) + "\n\nThe sum %s was paid.\n",
	}[w.rng.IntN(5)], mark)
}

// pick is one of a list, or a value that is none of it.
func (w *toolWalk) pick(list []string, none string) string {
	if len(list) == 0 || w.rng.IntN(8) == 0 {
		return none
	}
	return list[w.rng.IntN(len(list))]
}

func (w *toolWalk) ids() (ids []string) {
	for id := range w.texts {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// step makes one call as one identity, and checks what it shows.
func (w *toolWalk) step() {
	w.t.Helper()
	name := w.names[w.rng.IntN(len(w.names))]
	path := []string{"/mcp", "/mcp/read"}[w.rng.IntN(2)]
	a := w.agents[path+" "+name]
	id := w.pick(w.ids(), fmt.Sprintf("new-%d", w.rng.IntN(1e6)))
	switch n := w.rng.IntN(10); {
	case n < 3:
		query := []string{"budget", "*", "what is due in May?", "the sum that was paid", "id-taken"}[w.rng.IntN(5)]
		w.used(a, name, "recall", map[string]any{"query": query, "limit": 1 + w.rng.IntN(30)}, "")
	case n < 5:
		w.used(a, name, "read", map[string]any{"sourceId": id, "offset": w.rng.IntN(40)}, id)
	case n < 6:
		res, err := a.ReadResource(w.t.Context(), &sdk.ReadResourceParams{URI: "memory://default/sources/" + id})
		text, failure := json.Marshal(res)
		runtest.Must(w.t, failure)
		w.shown(name, "a resource", fmt.Sprint(string(text), err), id)
	case path == "/mcp/read":
		tool := []string{"remember", "forget", "get_ingestion", "get_node", "search_memory_trace"}[w.rng.IntN(5)]
		if res, err := a.CallTool(w.t.Context(), &sdk.CallToolParams{
			Name: tool, Arguments: map[string]any{"content": "x", "sourceId": id},
		}); err == nil {
			w.t.Fatalf("%s is called at /mcp/read: %v", tool, res)
		}
	case n < 8:
		w.remember(a, name, id)
	case n < 9:
		w.forget(a, name, id)
	default:
		send := w.pick(w.sends, "00000000-0000-7000-8000-000000000000 eve")
		of, author, _ := strings.Cut(send, " ")
		_, refusal := w.used(a, name, "get_ingestion", map[string]any{"ingestionId": of}, "")
		if author != name && !strings.HasPrefix(refusal, "not-found: ") {
			w.t.Fatalf("%s polls a send of %s: %q", name, author, refusal)
		}
	}
}

// remember sends a text as an identity, sometimes under the id of another.
func (w *toolWalk) remember(a agent, name, id string) {
	w.t.Helper()
	mark := w.mark()
	args := map[string]any{"content": w.content(mark), "id": id}
	audience, named := "", w.rng.IntN(2) == 0
	if named {
		audience = "of-" + w.names[w.rng.IntN(len(w.names))]
		args["audience"] = audience
		if w.rng.IntN(3) == 0 { // of the same reach
			audience, args["audience"] = "of-"+name, "me"
		}
	}
	known := w.texts[id]
	text, refusal := w.used(a, name, "remember", args, id)
	switch {
	case named && audience != "of-"+name:
		if !strings.HasPrefix(refusal, "audience-unknown: ") {
			w.t.Fatalf("%s sends to %s: %q %q", name, audience, text, refusal)
		}
	case known != nil && (known.author != name || known.deleted):
		w.refusals++
		if !strings.HasPrefix(refusal, "id-taken: ") {
			w.t.Fatalf("%s replaces %s of %s: %q %q", name, id, known.author, text, refusal)
		}
	case refusal != "":
		w.t.Fatalf("%s sends %v: %s", name, args, refusal)
	default:
		if known == nil {
			known = &walkText{author: name, of: map[string]string{}}
			w.texts[id] = known
		}
		if named {
			known.now = audience
		}
		known.of[mark], w.marks[mark] = known.now, known
	}
}

// forget deletes a text as an identity, sometimes that of another.
func (w *toolWalk) forget(a agent, name, id string) {
	w.t.Helper()
	known := w.texts[id]
	_, refusal := w.used(a, name, "forget", map[string]any{"sourceId": id}, id)
	own := known != nil && known.author == name && !known.deleted
	if own != (refusal == "") {
		w.t.Fatalf("%s forgets %s (own: %t): %q", name, id, own, refusal)
	}
	if own {
		known.deleted = true
	} else if known != nil {
		w.refusals++
	}
}

// used calls a tool and checks what it shows.
func (w *toolWalk) used(a agent, name, tool string, args map[string]any, id string) (text, refusal string) {
	w.t.Helper()
	var answer json.RawMessage
	text, refusal = a.use(tool, args, &answer)
	if key := (struct{ IngestionID string }{}); tool == "remember" && json.Unmarshal(answer, &key) == nil && refusal == "" {
		w.sends = append(w.sends, key.IngestionID+" "+name)
	}
	w.shown(name, tool, text+string(answer)+refusal, id)
	return text, refusal
}

// marked finds the marks of a text, and sourced the ids that the walk gives.
var marked, sourced = regexp.MustCompile(`qz\d+x\d+`), regexp.MustCompile(`new-\d+`)

// shown checks that an answer has no mark and no id of a text that an identity may not read; id is the one that it
// named.
func (w *toolWalk) shown(name, what, answer, id string) {
	w.t.Helper()
	for _, mark := range marked.FindAllString(answer, -1) {
		if t := w.marks[mark]; t != nil && !t.may(name, mark) {
			w.t.Fatalf("%s shows %s a text of %s (deleted: %t): %s", what, name, t.author, t.deleted, answer)
		}
		w.reached++
	}
	for _, source := range sourced.FindAllString(answer, -1) {
		if t := w.texts[source]; t != nil && source != id && (t.deleted || t.now != "" && t.now != "of-"+name) {
			w.t.Fatalf("%s shows %s the id %s of %s: %s", what, name, source, t.author, answer)
		}
	}
	for _, other := range w.names {
		if other != name && strings.Contains(answer, "of-"+other) && what != "remember" {
			w.t.Fatalf("%s shows %s an audience of %s: %s", what, name, other, answer)
		}
	}
}

// Over all tools and resources of /mcp and /mcp/read, nothing that recall as an identity would not show is in an
// answer, an error or the log. ANNALS_TOOL_STEPS makes the walk longer.
func TestMCP_Walk(t *testing.T) {
	unraced(t)
	t.Parallel()
	steps := stepsOf(t, "ANNALS_TOOL_STEPS", 300)
	w, log := newToolWalk(t)
	for range steps {
		w.step()
	}
	if marks := marked.FindAllString(log.String(), -1); len(marks) > 0 {
		t.Errorf("the log has %q", marks)
	}
	if w.reached < steps/10 || w.refusals < steps/50 {
		t.Errorf("the walk saw %d texts, and was refused %d", w.reached, w.refusals)
	}
}
