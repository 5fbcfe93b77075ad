package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/hostilefiles"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/readapi"
)

// estimatePeriod is how many steps of a walk there are for each estimate.
const estimatePeriod = 8

// walkEstimates makes estimates in the project of a walk. It has random numbers of its own, so that the steps of a
// walk are the same with them and without.
type walkEstimates struct {
	*estimates
	api *apitest.Client
	// asked are some bodies with their answers.
	asked []askedEstimate
}

type askedEstimate struct {
	body   string
	answer apitest.Response
}

// keptAnswers is how many answers are kept.
const keptAnswers = 16

func newWalkEstimates(w *walk) *walkEstimates {
	cfg := apitest.EdgeConfig()
	cfg.Keys, cfg.Calls = ownKey{w.call.Principal}, noCalls{w.t}
	router := httpx.New(cfg)
	readapi.Register(router, readapi.Deps{Rooms: endlessRoom{}})
	rng := rand.New(rand.NewPCG(w.seed, 1))
	// If it was stored, the question of the walk would find it.
	const text = "Zebra note. Dora's favourite city is %s."
	return &walkEstimates{
		api: apitest.Start(w.t, readapi.OpenAPI, router),
		estimates: newEstimates(w.seed, rng, text, func() map[string]any {
			return map[string]any{
				"id": fmt.Sprintf("note/%d", 1+rng.IntN(w.serial+1)), "identity": among(rng, walkNames...),
				"audience": among(rng, walkSlugs...), "timestamp": "2026-03-04T05:06:07Z",
			}
		}),
	}
}

// ownKey is the key of a principal, whatever its text.
type ownKey struct{ principal auth.Principal }

func (k ownKey) KeyByHash(context.Context, auth.Kind, [32]byte) (auth.Holder, bool, error) {
	return auth.Holder{Principal: k.principal}, true, nil
}

func (ownKey) ProjectNamed(context.Context, uuid.UUID, string) (auth.Named, bool, error) {
	return auth.Named{}, false, nil
}

func (ownKey) Agent(context.Context, uuid.UUID) (auth.AgentHolder, bool, error) {
	return auth.AgentHolder{}, false, nil
}

// noCalls is a request log that must stay empty.
type noCalls struct{ t *testing.T }

func (noCalls) Open(_ context.Context, o allowance.Owner) (*allowance.Hold, error) {
	return nil, fmt.Errorf("a call of %v is logged", o)
}

func (noCalls) RetainsBodies(metering.Plan) bool { return false }

func (l noCalls) Add(r requestlog.Record) { l.t.Errorf("the call %+v is logged", r) }

// endlessRoom is the room of a project without limits.
type endlessRoom struct{}

func (endlessRoom) Room(context.Context, auth.Principal, time.Time) (account.Room, error) {
	return account.Room{}, nil
}

// estimate makes one estimate and asks for an earlier one again. Neither stores anything, and the answers show nothing
// of what is stored or of other estimates.
func (w *walk) estimate() {
	w.t.Helper()
	body, right := w.estimates.next()
	w.did("estimate %d", w.estimates.made)
	want := http.StatusBadRequest
	if right {
		want = http.StatusOK
	}
	w.ask(body, want)
}

// estimateAll estimates every hostile file in one call.
func (w *walk) estimateAll() {
	w.t.Helper()
	for _, points := range []string{"summary", "full", "none"} {
		w.did("estimate all files, %s", points)
		body := w.estimates.all(points)
		answer, files := w.ask(body, http.StatusOK), body["files"].([]any)
		var got struct {
			Files []struct {
				Path   string
				Points int
			}
			DataPoints int
		}
		w.must(json.Unmarshal([]byte(answer), &got))
		sum := 0
		for i, f := range got.Files {
			sum += f.Points
			if want := files[i].(map[string]any)["path"]; f.Path != want {
				w.fail("file %d is %.200q, want %.200q", i, f.Path, want)
			}
		}
		if len(got.Files) != len(files) || sum != got.DataPoints || sum == 0 {
			w.fail("%d files with %d data points, of %d", len(got.Files), sum, got.DataPoints)
		}
	}
}

// ask makes an estimate, and an earlier one again.
func (w *walk) ask(body map[string]any, want int) string {
	w.t.Helper()
	text, err := json.Marshal(body)
	w.must(err)
	before := w.head()
	asked := askedEstimate{string(text), w.answer(string(text))}
	if asked.answer.Status != want {
		w.fail("estimate: %d, want %d: %.600q to %.600q", asked.answer.Status, want, asked.answer.Body, asked.body)
	}
	if e := w.estimates; len(e.asked) < keptAnswers {
		e.asked = append(e.asked, asked)
	}
	again := among(w.estimates.rng, w.estimates.asked...)
	if answer := w.answer(again.body); plainEstimate(answer) != plainEstimate(again.answer) {
		w.fail("the same estimate is\n%.1000q\nthen\n%.1000q\nto %.600q", again.answer.Body, answer.Body, again.body)
	}
	if after := w.head(); after != before {
		w.fail("an estimate appended events: the log ends at %v, then at %v", before, after)
	}
	return asked.answer.Body
}

// plainEstimate is an answer without the id of its request.
func plainEstimate(r apitest.Response) string {
	return fmt.Sprint(r.Status, strings.ReplaceAll(r.Body, r.Header.Get("X-Request-Id"), ""))
}

// answer makes a call, and holds its answer against what is stored.
func (w *walk) answer(body string) apitest.Response {
	w.t.Helper()
	r := w.estimates.api.Call(http.MethodPost, auth.Prefix+estimateRoute, apitest.ProjectKey, body)
	if found := w.shownOf(body, r); found != "" {
		w.fail("an estimate shows %s: %.1000q to %.600q", found, r.Body, body)
	}
	return r
}

// shownOf is what an answer holds that is not of its request, "" for nothing.
func (w *walk) shownOf(body string, r apitest.Response) string {
	if found := strangeCanary(body, r.Header, r.Body); found != "" {
		return "the text of another estimate, " + found
	}
	stored := slices.Clone(walkSlugs)
	for _, p := range w.notes {
		stored = append(stored, p.id, p.content, p.label, p.author)
	}
	for _, text := range stored {
		if text != "" && strings.Contains(r.Body, `"`+text+`"`) && !strings.Contains(body, text) {
			return fmt.Sprintf("%q, which is stored", text)
		}
	}
	return ""
}

// A walk sees an estimate that shows what is stored, or what another one held.
func TestWalk_ShownByEstimates(t *testing.T) {
	w := &walk{accessModel: newAccess(auth.Project{})}
	w.notes["note/1"] = &note{id: "note/1", content: "Zebra note.", label: "Zebra call", author: "bo"}
	for name, c := range map[string]struct {
		body, answer string
		wrong        bool
	}{
		"nothing":           {body: `{}`, answer: `{"files":[]}`},
		"own":               {body: `{"id":"note/1","identity":"bo"}`, answer: `{"id":"note/1","identity":"bo"}`},
		"id":                {body: `{}`, answer: `{"id":"note/1"}`, wrong: true},
		"content":           {body: `{"id":"note/1"}`, answer: `{"content":"Zebra note."}`, wrong: true},
		"label":             {body: `{"id":"note/1"}`, answer: `{"label":"Zebra call"}`, wrong: true},
		"audience":          {body: `{"id":"note/1"}`, answer: `{"audience":"aa"}`, wrong: true},
		"identity":          {body: `{"id":"note/1"}`, answer: `{"identity":"bo"}`, wrong: true},
		"own canary":        {body: `"ze0123456789abcdef"`, answer: `"ze0123456789abcdef"`},
		"canary of another": {body: `"ze0123456789abcdef"`, answer: `"ze0123456789abcde0"`, wrong: true},
	} {
		if got := w.shownOf(c.body, apitest.Response{Body: c.answer}); (got != "") != c.wrong {
			t.Errorf("%s: it shows %q", name, got)
		}
	}
}

// estimateRoute is the path of the call below /api/v1.
const estimateRoute = "/ingest/estimate"

// estimates makes the bodies of estimates: hostile files of every kind and shape, items, and wrong ones.
type estimates struct {
	rng   *rand.Rand
	files []estimate.File
	made  int
	// item is a data point as the caller would send it.
	item func() map[string]any
	// text is put into files and items, with a canary in place of %s.
	text string
}

// hostileFileBytes is the size of a hostile file: many of them are estimated.
const hostileFileBytes = 2000

func newEstimates(seed uint64, rng *rand.Rand, text string, item func() map[string]any) *estimates {
	return &estimates{rng: rng, files: hostilefiles.Make(seed, hostileFileBytes), text: text, item: item}
}

func among[V any](rng *rand.Rand, list ...V) V { return list[rng.IntN(len(list))] }

// next is a body, and whether the files or items in it are right. Every third is wrong, every fourth has items.
func (e *estimates) next() (body map[string]any, right bool) {
	e.made++
	list, text := "files", e.newText()
	var entries []any
	if e.made%4 == 0 {
		list = "items"
	}
	for range 1 + e.rng.IntN(7) {
		if list == "items" {
			item := e.item()
			item["content"] = text
			entries = append(entries, item)
			continue
		}
		entries = append(entries, e.file(among(e.rng, e.files...), text))
	}
	body = map[string]any{list: entries}
	e.options(body)
	if e.made%3 == 0 {
		e.spoil(body, list)
		return body, false
	}
	return body, true
}

// all is a body with every file, each with its kind.
func (e *estimates) all(points string) map[string]any {
	entries, text := []any{}, e.newText()
	for _, f := range e.files {
		file := e.file(f, text)
		file["kind"] = f.Kind
		entries = append(entries, file)
	}
	return map[string]any{"files": entries, "points": points}
}

func (e *estimates) newText() string {
	return fmt.Sprintf(e.text, fmt.Sprintf("ze%016x", e.rng.Uint64()))
}

// file has the text in its path, and where its format allows it in its content. Its kind is right, wrong or to be
// detected.
func (e *estimates) file(f estimate.File, text string) map[string]any {
	canary, path := canaries.FindString(text), []rune(f.Path)
	if room := limit.EstimatePath - len(canary); len(path) > room {
		path = path[len(path)-room:]
	}
	file := map[string]any{"path": canary + string(path), "content": strings.Replace(f.Content, "tea", text, 1)}
	if kind := among(e.rng, "", f.Kind, f.Kind, among(e.rng, estimate.Kinds()...)); kind != "" {
		file["kind"] = kind
	}
	return file
}

func (e *estimates) options(body map[string]any) {
	if points := among(e.rng, "", "summary", "full", "none"); points != "" {
		body["points"] = points
	}
	if zone := among(e.rng, "", "UTC", "Europe/Rome", "Asia/Kathmandu"); zone != "" {
		body["timeZone"] = zone
	}
}

// spoil makes one thing wrong.
func (e *estimates) spoil(body map[string]any, list string) {
	other := map[string]string{"files": "items", "items": "files"}[list]
	entries := body[list].([]any)
	switch n := e.rng.IntN(9); n {
	case 0:
		body[other] = entries
	case 1:
		delete(body, list)
	case 2:
		body[list] = among[any](e.rng, []any{}, e.newText(), map[string]any{"path": "a"}, 1, true)
	case 3:
		body["points"] = among[any](e.rng, "some", e.newText(), 1, []any{})
	case 4:
		body["timeZone"] = among[any](e.rng, "Local", "Mars/Olympus", "../../etc/passwd", e.newText(), -1)
	case 5: // neither a file nor an item
		body[list] = append(entries, map[string]any{"path": e.newText(), "id": "a"})
	case 6:
		body[list] = append(entries, among[any](e.rng, nil, 1, e.newText(), []any{}))
	default:
		body[list] = append(entries, map[string]any{
			"path": strings.Repeat("p", limit.EstimatePath+n-7), "content": "",
			"kind": among(e.rng, "pdf", "Email", e.newText()),
		})
		if list == "items" {
			body[list] = append(entries, map[string]any{"content": e.newText(), "id": strings.Repeat("p", limit.SourceID+1)})
		}
	}
}

// canaries are in the texts that are only estimated, another one in each request.
var canaries = regexp.MustCompile(`ze[0-9a-f]{16}`)

// strangeCanary is the text of an estimate that an answer holds although its request does not, "" for none.
func strangeCanary(request string, header http.Header, answer string) string {
	for _, found := range canaries.FindAllString(answer+fmt.Sprint(header), -1) {
		if !strings.Contains(request, found) {
			return found
		}
	}
	return ""
}

// The bodies repeat by their seed, are of both lists and every kind, and have what they are said to have.
func TestEstimates(t *testing.T) {
	made := func() (lists, points, kinds map[string]int, wrong int) {
		rng := rand.New(rand.NewPCG(1, 0))
		e := newEstimates(1, rng, "tea %s", func() map[string]any { return map[string]any{"id": "a"} })
		lists, points, kinds = map[string]int{}, map[string]int{}, map[string]int{}
		for range 100 {
			body, right := e.next()
			points[fmt.Sprint(body["points"])]++
			if !right {
				wrong++
				continue
			}
			for _, list := range []string{"files", "items"} {
				entries, _ := body[list].([]any)
				lists[list] += len(entries)
				for _, entry := range entries {
					kinds[fmt.Sprint(entry.(map[string]any)["kind"])]++
					if text := fmt.Sprint(entry); canaries.FindString(text) == "" {
						t.Errorf("no canary in %.200q", text)
					}
				}
			}
		}
		return lists, points, kinds, wrong
	}
	lists, points, kinds, wrong := made()
	listsAgain, pointsAgain, kindsAgain, wrongAgain := made()
	if !maps.Equal(lists, listsAgain) || !maps.Equal(points, pointsAgain) || !maps.Equal(kinds, kindsAgain) ||
		wrong != wrongAgain {
		t.Error("the same seed makes other bodies")
	}
	if lists["files"] == 0 || lists["items"] == 0 || points["summary"]*points["full"]*points["none"] == 0 || wrong != 33 {
		t.Errorf("made %v, %v, %d wrong", lists, points, wrong)
	}
	for _, kind := range estimate.KindNames() {
		if kinds[kind] == 0 {
			t.Errorf("no file of kind %s among %v", kind, slices.Sorted(maps.Keys(kinds)))
		}
	}
	const canary = "ze0123456789abcdef"
	if strangeCanary("{}", nil, canary) == "" || strangeCanary("{}", http.Header{"A": {canary}}, "") == "" ||
		strangeCanary(canary, nil, canary) != "" {
		t.Error("a canary is taken for a strange one, or the reverse")
	}
}
