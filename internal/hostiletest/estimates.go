package hostiletest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/limit"
)

// Estimates makes the bodies of estimates: hostile files of every kind and shape, items, and wrong ones.
type Estimates struct {
	rng *rand.Rand
	// Files are the hostile ones.
	Files []estimate.File
	// Made counts the bodies.
	Made int
	// item is a data point as the caller would send it.
	item func() map[string]any
	// text is put into files and items, with a canary in place of %s.
	text string
}

// hostileFileBytes is the size of a hostile file: many of them are estimated.
const hostileFileBytes = 2000

// NewEstimates makes them of the files of a seed.
func NewEstimates(seed uint64, rng *rand.Rand, text string, item func() map[string]any) *Estimates {
	return &Estimates{rng: rng, Files: Files(seed, hostileFileBytes), text: text, item: item}
}

func among[V any](rng *rand.Rand, list ...V) V { return list[rng.IntN(len(list))] }

// Next is a body, and whether the files or items in it are right. Every third is wrong, every fourth has items.
func (e *Estimates) Next() (body map[string]any, right bool) {
	e.Made++
	list, text := "files", e.newText()
	var entries []any
	if e.Made%4 == 0 {
		list = "items"
	}
	for range 1 + e.rng.IntN(7) {
		if list == "items" {
			item := e.item()
			item["content"] = text
			entries = append(entries, item)
			continue
		}
		entries = append(entries, e.file(among(e.rng, e.Files...), text))
	}
	body = map[string]any{list: entries}
	e.options(body)
	if e.Made%3 == 0 {
		e.spoil(body, list)
		return body, false
	}
	return body, true
}

// All is a body with every file, each with its kind.
func (e *Estimates) All(points string) map[string]any {
	files, text := slices.Clone(e.Files), e.newText()
	for n := range files {
		files[n] = marked(files[n], text)
	}
	return Estimate(files, points).Body.(map[string]any)
}

func (e *Estimates) newText() string {
	return fmt.Sprintf(e.text, fmt.Sprintf("ze%016x", e.rng.Uint64()))
}

// marked is a file with the canary of a text in its path, and where its format allows it with the text in its content.
func marked(f estimate.File, text string) estimate.File {
	canary, path := canaries.FindString(text), []rune(f.Path)
	if room := limit.EstimatePath - len(canary); len(path) > room {
		path = path[len(path)-room:]
	}
	f.Path, f.Content = canary+string(path), strings.Replace(f.Content, "tea", text, 1)
	return f
}

// file is a file with a text. Its kind is right, wrong or to be detected.
func (e *Estimates) file(f estimate.File, text string) map[string]any {
	f = marked(f, text)
	file := map[string]any{"path": f.Path, "content": f.Content}
	if kind := among(e.rng, "", f.Kind, f.Kind, among(e.rng, estimate.Kinds()...)); kind != "" {
		file["kind"] = kind
	}
	return file
}

func (e *Estimates) options(body map[string]any) {
	if points := among(e.rng, "", "summary", "full", "none"); points != "" {
		body["points"] = points
	}
	if zone := among(e.rng, "", "UTC", "Europe/Rome", "Asia/Kathmandu"); zone != "" {
		body["timeZone"] = zone
	}
}

// spoil makes one thing wrong.
func (e *Estimates) spoil(body map[string]any, list string) {
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

// StrangeCanary is the text of an estimate that an answer holds although its request does not, "" for none.
func StrangeCanary(request string, header http.Header, answer string) string {
	for _, found := range canaries.FindAllString(answer+fmt.Sprint(header), -1) {
		if !strings.Contains(request, found) {
			return found
		}
	}
	return ""
}
