package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/internal/hostilefiles"
)

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
