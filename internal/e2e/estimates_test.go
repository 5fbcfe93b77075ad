package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/apitest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/hostiletest"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/account"
	"github.com/annals-project/annals/readapi"
)

// estimateRoute is the path of the call below /api/v1.
const estimateRoute = "/ingest/estimate"

// estimatePeriod is how many steps of a walk there are for each estimate.
const estimatePeriod = 8

// walkEstimates makes estimates in the project of a walk. It has random numbers of its own, so that the steps of a
// walk are the same with them and without.
type walkEstimates struct {
	*hostiletest.Estimates
	rng *rand.Rand
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
		rng: rng, api: apitest.Start(w.t, readapi.OpenAPI, router),
		Estimates: hostiletest.NewEstimates(w.seed, rng, text, func() map[string]any {
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
	body, right := w.estimates.Next()
	w.did("estimate %d", w.estimates.Made)
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
		body := w.estimates.All(points)
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
	if found := hostiletest.StrangeCanary(body, r.Header, r.Body); found != "" {
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
	w.notes["note/1"] = &note{
		id: "note/1", author: "bo", fields: fields{content: "Zebra note.", label: "Zebra call"},
	}
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
