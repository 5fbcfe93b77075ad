package requestlog

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/metering"
)

func TestPerson_StandsInBodies(t *testing.T) {
	tests := []struct {
		name, body string
		want       bool
	}{
		{"ana", `{"identity":"ana"}`, true},
		{"ana", `{"identity":"\u0061n\u0061"}`, true},
		{"ana", `{"debugMessage":"no identity \"ana\""}`, true},
		{"ana", `{"identity":"anabel"}`, false},
		{"ana", `{"identity":"Juliana"}`, false},
		{"ana", `{"q":"banana ana"}`, true},
		{"ana", `{"identity":"Ana"}`, false},
		{"a/b \"c\"", `{"identity":"a\/b \"c\""}`, true},
		{"ü@x.de", `{"identity":"\u00fc@x.de"}`, true},
		{"é1", `["xé1"]`, false},
		{"\U0001F600", `["\ud83d\ude00"]`, true},
		{"\U0001F600", `["\ud83d"]`, false},
		{"@", `["a@b"]`, true},
		{"ana", `{"identity":"an\`, false},
		{"ana", `{"identity":"ana\u00`, true},
		{"ana", ``, false},
	}
	for _, tt := range tests {
		body := tt.body + strings.Repeat(" ", packFrom) // long enough to be compressed
		for _, b := range []string{tt.body, body} {
			if got, err := (person{names: []string{tt.name}}).isIn(nil, pack([]byte(b))); err != nil || got != tt.want {
				t.Errorf("%q in %q: %t, %v", tt.name, tt.body, got, err)
			}
		}
	}
}

func TestBlankPerson_StoredCalls(t *testing.T) {
	h := newHarness(t)
	project, other := uuid.New(), uuid.New()
	var records []Record
	add := func(change func(*Record)) {
		r := recordAt(project, noon.AddDate(0, 0, len(records)%3))
		change(&r)
		records = append(records, r)
	}
	// The first four are blanked, of the next three only the bodies are removed.
	add(func(r *Record) { r.Identity = "ana" })
	add(func(r *Record) { r.Endpoint, r.Path = "GET /api/v1/identities/{identity}", "/api/v1/identities/%61na" })
	add(func(r *Record) { r.Endpoint, r.Path = "GET /api/v1/*", "/api/v1/people/ana/x" })
	add(func(r *Record) { r.RequestHeader = map[string][]string{"User-Agent": {"curl of ana"}} })
	add(func(r *Record) { r.Payload.Request = []byte(`[{"identity":"ana"}]`) })
	add(func(r *Record) { r.Payload.Response = []byte(`{"identities":[{"identity":"\u0061na"}]}`) })
	add(func(r *Record) { r.Status, r.Payload.RequestTruncated = 400, true })
	add(func(r *Record) { r.Payload.RequestTruncated = true })
	add(func(r *Record) { r.Identity, r.Path = "anabel", "/api/v1/identities/anabel" })
	add(func(r *Record) { r.Project, r.Identity = other, "ana" })
	h.add(t, records...)
	b := &Blanker{DB: h.db}
	for run := range 2 {
		calls, err := b.BlankPerson(t.Context(), project, "ana")
		if want := []int{7, 0}[run]; err != nil || calls != want {
			t.Fatalf("run %d: %d calls, %v", run, calls, err)
		}
		tables, err := b.Tables(t.Context())
		if err != nil || len(tables) < 6 {
			t.Errorf("run %d: tables %v, %v", run, tables, err)
		}
	}
	want := []bool{false, false, false, false, false, false, false, true, true, true}
	if has := h.payloads(t, records); !slices.Equal(has, want) {
		t.Errorf("calls with bodies: %v", has)
	}
	for n, r := range records {
		call, err := h.Get(t.Context(), r.Project, r.RequestID)
		if err != nil {
			t.Fatal(err)
		}
		blank := call.Identity == nil && !strings.Contains(call.Path, "na") && string(call.RequestHeaders) == "{}"
		if n < 4 != blank && n != 4 && n != 5 && n != 6 && n != 7 {
			t.Errorf("call %d: %+v", n, call.Entry)
		}
	}
}

// A call waits in the memory of another process while a person of its project is erased.
func TestBlankPerson_CallInMemory(t *testing.T) {
	h := newHarness(t)
	writer := NewWriter(h.db, metering.DefaultPlanTerms(), slog.New(slog.DiscardHandler))
	project := uuid.New()
	records := []Record{recordAt(project, noon), recordAt(uuid.New(), noon), recordAt(project, noon)}
	for i := range records {
		records[i].Identity, records[i].Endpoint, records[i].Path = "ana", "GET /api/v1/identities/{identity}", "/api/v1/identities/ana"
	}
	writer.Add(records[0])
	writer.Add(records[1])
	if _, err := (&Blanker{DB: h.db}).BlankPerson(t.Context(), project, "ana"); err != nil {
		t.Fatal(err)
	}
	writer.drain(t.Context())
	writer.Add(records[2]) // a later call
	writer.drain(t.Context())
	if has := h.payloads(t, records); !slices.Equal(has, []bool{false, true, true}) {
		t.Errorf("calls with bodies: %v", has)
	}
	call, err := h.Get(t.Context(), project, records[0].RequestID)
	if err != nil || call.Identity != nil || call.Path != "/api/v1/identities/{identity}" {
		t.Errorf("%+v, %v", call.Entry, err)
	}
}
