package server

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/internal/minilm"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/embeddings"
)

func TestParseBuiltin(t *testing.T) {
	unraced(t)
	for _, c := range []struct {
		text     string
		endpoint bool
		want     Builtin
		says     string
	}{
		{"", false, BuiltinAuto, ""},
		{"auto", true, BuiltinAuto, ""},
		{"builtin", false, BuiltinWanted, ""},
		{"none", false, BuiltinNone, ""},
		{"none", true, "", "ANNALS_EMBEDDINGS_URL is set"},
		{"off", false, "", "auto, none or builtin"},
		{"Auto", false, "", "auto, none or builtin"},
	} {
		got, err := ParseBuiltin(c.text, c.endpoint)
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q, endpoint %v: %q, %v", c.text, c.endpoint, got, err)
		}
	}
}

func TestParseLeast(t *testing.T) {
	unraced(t)
	for text, want := range map[string]float64{"": 0, "0": 0, "0.35": 0.35, "1": 1} {
		if got, err := ParseLeast(text, want > 0); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := ParseLeast("0.35", false); got != 0 || err == nil ||
		!strings.Contains(err.Error(), "ANNALS_EMBEDDINGS_URL is not") {
		t.Errorf("without an endpoint: %v, %v", got, err)
	}
	for _, text := range []string{"1.01", "-0.1", "NaN", "+Inf", "35%", "0,35"} {
		if got, err := ParseLeast(text, true); got != 0 || err == nil || !strings.Contains(err.Error(), "from 0 to 1") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// fakeEncoder is a built-in model of a test: hashed words with the synonyms of fakeEmbeddings. It counts the texts that
// are not a question.
type fakeEncoder struct{ indexed *atomic.Int64 }

func (fakeEncoder) Name() string { return "all-MiniLM-L6-v2-q@fake" }

func (f fakeEncoder) Embed(_ context.Context, text string) ([]float32, error) {
	if strings.HasPrefix(text, "note: ") {
		f.indexed.Add(1)
	}
	vector := make([]float32, 512)
	for _, word := range strings.Fields(synonyms.Replace(strings.ToLower(text))) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(strings.Trim(word, ".,:?()")))
		vector[h.Sum32()%512]++
	}
	return vector, nil
}

// open opens the model if its file is in the folder.
func (f fakeEncoder) open(dir string) (model.Encoder, error) {
	if _, err := os.Stat(filepath.Join(dir, "model.onnx")); err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	return f, nil
}

// records is a log that a test reads. seen is how much of it was read.
type records struct {
	runtest.Output
	seen int
}

// about returns the lines since the last call that name an embedding model.
func (r *records) about() (lines []string) {
	text := r.String()
	for line := range strings.Lines(text[r.seen:]) {
		if strings.Contains(line, "recall searches by words alone") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	r.seen = len(text)
	return lines
}

// modelHarness is a service whose built-in model may be installed and removed.
type modelHarness struct {
	*harness
	log     *records
	encoder fakeEncoder
	key     string
}

func newModelHarness(t *testing.T) *modelHarness {
	return &modelHarness{harness: newHarness(t), log: &records{}, encoder: fakeEncoder{new(atomic.Int64)}}
}

// begin starts the service with a setting, and with what else change sets; nil is nothing.
func (h *modelHarness) begin(builtin Builtin, change func(*Config)) {
	h.t.Helper()
	h.set = func(c *Config) {
		c.Builtin, c.openEncoder = builtin, h.encoder.open
		c.Logger = slog.New(slog.NewTextHandler(h.log, nil))
		if change != nil {
			change(c)
		}
	}
	h.start()
	h.key, _ = h.keys()
}

func (h *modelHarness) modelFile() string {
	return filepath.Join(h.config().Data.Model(), "model.onnx")
}

func (h *modelHarness) install() {
	h.t.Helper()
	runtest.Must(h.t, os.MkdirAll(filepath.Dir(h.modelFile()), 0o755))
	runtest.Must(h.t, os.WriteFile(h.modelFile(), nil, 0o600))
}

// findsByMeaning waits until a word that no text has finds one: a slow machine answers by words alone.
func (h *modelHarness) findsByMeaning() {
	h.t.Helper()
	runtest.Await(h.t, "a text is found by its meaning", func() bool { return h.first("gizmotron") == "blue" })
}

// first returns the source id of the best result, "" if there is none.
func (h *modelHarness) first(query string) string {
	h.t.Helper()
	var page struct {
		Results []struct{ Sources []struct{ SourceID string } }
	}
	h.must(h.key, http.MethodPost, api+"/recall", point{"query": query, "identity": "bo"}, &page)
	if len(page.Results) == 0 {
		return ""
	}
	return page.Results[0].Sources[0].SourceID
}

// embedded waits until vectors of n data points by a model are stored.
func (h *modelHarness) embedded(model string, n int) {
	h.t.Helper()
	runtest.Await(h.t, "all are embedded", func() bool {
		var got int
		err := h.storage.db.QueryRow(h.t.Context(), "select count(*) from embeddings.points where model = $1", model).Scan(&got)
		return err == nil && got == n
	})
}

func (h *modelHarness) hasProjection() bool {
	return slices.Contains(h.read.runtime.Names(), embeddings.Name)
}

// off is what operators read of semantic search. Every client reads whether it is off.
func (h *modelHarness) off() string {
	h.t.Helper()
	c, err := client.New(h.urls.API, "")
	runtest.Must(h.t, err)
	var off string
	// Clients read what was read for another one up to a second ago.
	runtest.Await(h.t, "clients and operators read the same", func() bool {
		is, err := c.Ready(h.t.Context())
		if err != nil || !is.Ready {
			h.t.Fatalf("%+v, %v", is, err)
		}
		off = h.remarks(true).SemanticSearchOff
		return (is.SemanticSearchOff == "") == (off == "")
	})
	return off
}

// A model that is removed is reported with its name. Its vectors are used again, and not made again, once it is back.
func TestModels_RemovedAndInstalledAgain(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newModelHarness(t)
	h.install()
	h.begin(BuiltinAuto, nil)
	h.send(h.key, "/ingest", "completed", point{"id": "blue", "content": "My automobile turned blue", "label": "note"})
	h.send(h.key, "/ingest", "completed", point{"id": "gone", "content": "Her automobile turned green", "label": "note"})
	h.embedded(h.encoder.Name(), 2)
	if got := h.first("blue gizmotron"); got != "blue" || h.off() != "" || len(h.log.about()) != 0 {
		t.Errorf("installed: %q, status %q", got, h.off())
	}
	for range 2 { // each start warns
		h.stop()
		runtest.Must(t, os.RemoveAll(h.modelFile()))
		h.begin(BuiltinAuto, nil)
		lines := h.log.about()
		if len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], h.encoder.Name()) ||
			!strings.Contains(lines[0], "make model") {
			t.Errorf("removed: logged %q", lines)
		}
		if off := h.off(); !strings.Contains(off, h.encoder.Name()) || !strings.Contains(off, "make model") {
			t.Errorf("removed: status %q", off)
		}
		if got := h.first("gizmotron"); got != "" {
			t.Errorf("removed: %q", got)
		}
	}
	// Vectors of a deleted text leave meanwhile.
	h.must(h.key, http.MethodPost, api+"/data-points/delete", point{"ids": []string{"gone"}}, nil)
	runtest.Await(h.t, "the vectors of the deleted one left", func() bool {
		var n int
		err := h.storage.db.QueryRow(t.Context(), "select count(*) from embeddings.vectors").Scan(&n)
		return err == nil && n == 1
	})
	h.stop()
	indexed := h.encoder.indexed.Load()
	h.install()
	h.begin(BuiltinAuto, nil)
	if got := h.first("blue gizmotron"); got != "blue" || h.off() != "" || len(h.log.about()) != 0 {
		t.Errorf("installed again: %q, status %q", got, h.off())
	}
	if again := h.encoder.indexed.Load() - indexed; again != 0 {
		t.Errorf("%d texts embedded again", again)
	}
}

// Without its endpoint the model of the stored vectors is missing. With none nothing is stored or reported. The
// endpoint comes before the built-in model, which takes over once it has made its own vectors.
func TestModels_EndpointRemoved(t *testing.T) {
	unraced(t)
	t.Parallel()
	fake := httptest.NewServer(&fakeEmbeddings{t: t})
	t.Cleanup(fake.Close)
	endpoint := func(c *Config) { c.Embeddings.URL, c.Embeddings.Name = fake.URL+"/v1", "small" }
	h := newModelHarness(t)
	h.begin(BuiltinAuto, endpoint)
	h.send(h.key, "/ingest", "completed", point{"id": "blue", "content": "My automobile turned blue", "label": "note"})
	h.embedded("small", 1)
	h.stop()
	h.log.about()
	h.begin(BuiltinAuto, nil)
	lines := h.log.about()
	if len(lines) != 1 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "model=small") ||
		!strings.Contains(lines[0], "ANNALS_EMBEDDINGS_URL") {
		t.Errorf("endpoint removed: logged %q", lines)
	}
	if off := h.off(); !strings.Contains(off, "model small") || !strings.Contains(off, "ANNALS_EMBEDDINGS_URL") {
		t.Errorf("endpoint removed: status %q", off)
	}
	h.stop()
	h.install()
	h.begin(BuiltinAuto, endpoint)
	h.findsByMeaning()
	if model := h.semantic.live.Vectors().Name(); model != "small" || h.off() != "" {
		t.Errorf("endpoint again: by %s", model)
	}
	h.stop()
	h.log.about()
	h.begin(BuiltinAuto, nil)
	h.embedded(h.encoder.Name(), 1)
	runtest.Await(h.t, "the built-in model takes over", func() bool { return h.off() == "" })
	h.findsByMeaning()
	if lines := h.log.about(); len(lines) != 1 || !strings.Contains(lines[0], "small") {
		t.Errorf("other model: logged %q", lines)
	}
	h.stop()
	runtest.Must(t, os.Remove(h.modelFile()))
	h.begin(BuiltinNone, nil)
	if h.hasProjection() || h.off() != "" || len(h.log.about()) != 0 {
		t.Errorf("none: status %q", h.off())
	}
	h.stop()
	h.begin(BuiltinAuto, nil)
	if lines := h.log.about(); h.hasProjection() || h.off() != "" || len(lines) != 1 || !strings.Contains(lines[0], "level=INFO") {
		t.Errorf("after none: status %q, logged %q", h.off(), lines)
	}
}

// A model that is installed, or that the configuration names, is used. Without one search is lexical, and the log has
// how to get one, unless the roles of the process need none. A damaged model counts as not installed, and stops the
// start of a service that wants it, as one that the configuration names and that cannot be used.
func TestModels_ByTheirSetting(t *testing.T) {
	unraced(t)
	h := newTenant(t)
	folder := t.TempDir()
	runtest.Must(t, os.WriteFile(filepath.Join(folder, "model.onnx"), nil, 0o600))
	away := filepath.Join(t.TempDir(), "none")
	damaged := func(string) (model.Encoder, error) { return nil, errors.New("model.onnx has 3 bytes") }
	for name, c := range map[string]struct {
		builtin   Builtin
		data      string
		file      string
		open      func(string) (model.Encoder, error)
		roles     Roles
		stored    string
		projected bool
		// logged are parts of the only line of the log, or of the error.
		logged []string
		off    bool
	}{
		"auto":                {builtin: BuiltinAuto, data: away, logged: []string{"level=INFO", "no embedding model is installed", "make model"}},
		"builtin":             {builtin: BuiltinWanted, data: away, projected: true, logged: []string{"level=WARN", "is not installed", "make model"}},
		"none":                {builtin: BuiltinNone, data: away},
		"none, damaged":       {builtin: BuiltinNone, open: damaged},
		"auto, damaged":       {builtin: BuiltinAuto, open: damaged, logged: []string{"level=WARN", "model.onnx has 3 bytes"}},
		"builtin, damaged":    {builtin: BuiltinWanted, open: damaged, logged: []string{"install it again"}},
		"of a file":           {builtin: BuiltinAuto, data: away, file: folder, projected: true},
		"of no file":          {builtin: BuiltinAuto, file: away, logged: []string{"ANNALS_EMBEDDINGS_MODEL cannot be used"}},
		"stored, read":        {builtin: BuiltinAuto, data: away, roles: Roles{RoleRead}, stored: "small", logged: []string{"level=WARN", "small"}, off: true},
		"stored, pipeline":    {builtin: BuiltinAuto, data: away, roles: Roles{RolePipeline}, stored: "small", logged: []string{"small"}, off: true},
		"stored, console":     {builtin: BuiltinAuto, data: away, roles: Roles{RoleConsole}, stored: "small", logged: []string{"small"}, off: true},
		"stored, a projector": {builtin: BuiltinAuto, data: away, roles: Roles{RoleProjector}, stored: "small"},
		"stored, a writer":    {builtin: BuiltinAuto, data: away, roles: Roles{RoleWrite}, stored: "small"},
	} {
		log, cfg := &records{}, h.cfg
		cfg.Builtin, cfg.BuiltinFile, cfg.Data.Dir, cfg.openEncoder, cfg.Roles = c.builtin, c.file, c.data, c.open, c.roles
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		if c.open == nil {
			cfg.openEncoder = fakeEncoder{new(atomic.Int64)}.open
		}
		m, err := newModels(t.Context(), cfg, h.storage)
		if c.stored != "" {
			m.stored = c.stored
		}
		off := ""
		if err == nil && m.configured() == nil {
			off = m.reportNone(t.Context(), cfg)
		}
		said := log.about()
		if err != nil {
			said = append(said, err.Error())
		}
		if m.projected != c.projected || (m.configured() != nil) != (c.file == folder) || (off != "") != c.off ||
			len(said) != min(1, len(c.logged)) {
			t.Errorf("%s: %+v, status %q, logged %q", name, m, off, said)
		}
		for _, want := range c.logged {
			if !strings.Contains(strings.Join(said, ""), want) {
				t.Errorf("%s: logged %q without %q", name, said, want)
			}
		}
	}
}

// What an endpoint's model finds has at least the cosine that is set; what words find does not need it.
func TestModels_EndpointLeast(t *testing.T) {
	unraced(t)
	t.Parallel()
	fake := httptest.NewServer(&fakeEmbeddings{t: t})
	t.Cleanup(fake.Close)
	h := newModelHarness(t)
	for _, c := range []struct {
		least float64
		want  string
	}{{0, "blue"}, {0.2, "blue"}, {0.9, ""}} {
		h.begin(BuiltinAuto, func(cfg *Config) {
			cfg.Embeddings.URL, cfg.Embeddings.Name, cfg.EmbeddingsLeast = fake.URL+"/v1", "small", c.least
		})
		if c.least == 0 {
			h.send(h.key, "/ingest", "completed", point{"id": "blue", "content": "My automobile turned blue", "label": "note", "identity": "Ana"})
			h.embedded("small", 1)
		}
		if c.want != "" {
			h.findsByMeaning()
		} else if got := h.first("gizmotron"); got != "" {
			t.Errorf("least %v: by meaning %q", c.least, got)
		}
		if got := h.first("automobile"); got != "blue" {
			t.Errorf("least %v: by words %q", c.least, got)
		}
		h.stop()
	}
}

// The built-in model has its own least cosine, an endpoint the one that is set, also for the model before.
func TestModels_Least(t *testing.T) {
	unraced(t)
	m := models{endpointLeast: 0.4}
	if got := m.least("all-MiniLM-L6-v2-q@fake")(100); got != minilm.LeastCosine(100) {
		t.Errorf("built-in: %v", got)
	}
	if got := m.least("small")(100); got != 0.4 {
		t.Errorf("endpoint: %v", got)
	}
}
