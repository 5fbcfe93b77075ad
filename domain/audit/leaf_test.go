package audit_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/internal/runtest"
)

const docs = "../../docs/"

// vector is an event of docs/leaf-vectors.json, with its leaf and its record in hexadecimal.
type vector struct {
	Name, Stream, Type, Metadata, Data string
	Organization, EventID              uuid.UUID
	Revision                           int64
	Leaf, Record                       string
}

func (v vector) event() audit.Event {
	return audit.Event{
		Organization: v.Organization, ID: v.EventID, Stream: v.Stream, Revision: v.Revision, Type: v.Type,
		Meta: []byte(v.Metadata), Data: []byte(v.Data),
	}
}

func vectors(t *testing.T) []vector {
	t.Helper()
	text, err := os.ReadFile(docs + "leaf-vectors.json")
	runtest.Must(t, err)
	var all []vector
	if err := json.Unmarshal(text, &all); err != nil || len(all) < 6 {
		t.Fatalf("%d vectors, %v", len(all), err)
	}
	return all
}

// The vectors were computed by another program.
func TestLeaf_Vectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			leaf, err := v.event().Leaf()
			if got := hex.EncodeToString(leaf); err != nil || got != v.Leaf {
				t.Errorf("leaf %s, want %s, %v", got, v.Leaf, err)
			}
			record, err := v.event().Record()
			if got := hex.EncodeToString(record[:]); err != nil || got != v.Record {
				t.Errorf("record %s, want %s, %v", got, v.Record, err)
			}
		})
	}
}

// The leaf of one event, each byte written by hand.
func TestLeaf_ByHand(t *testing.T) {
	salt, meta, data := "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10", `{"schema":1,"at":"2026-05-12T12:00:00.5Z"}`, `{"a":"ü"}`
	metaHash, dataHash := sha256.Sum256([]byte(salt+meta)), sha256.Sum256([]byte(salt+data))
	want := "annals-leaf/1\n" +
		"\x00\x00\x00\x10" + "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff" +
		"\x00\x00\x00\x10" + "\xff\xee\xdd\xcc\xbb\xaa\x99\x88\x77\x66\x55\x44\x33\x22\x11\x00" +
		"\x00\x00\x00\x07" + "usage-1" +
		"\x00\x00\x00\x08" + "\x00\x00\x00\x00\x00\x00\x01\x02" +
		"\x00\x00\x00\x10" + "usage.charged.v1" +
		"\x00\x00\x00\x16" + "2026-05-12T12:00:00.5Z" +
		"\x00\x00\x00\x20" + string(metaHash[:]) +
		"\x00\x00\x00\x20" + string(dataHash[:])
	got, err := audit.Event{
		Organization: uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff"),
		ID:           uuid.MustParse("ffeeddcc-bbaa-9988-7766-554433221100"),
		Stream:       "usage-1", Revision: 0x102, Type: "usage.charged.v1",
		Meta: []byte(`{"schema":1,"at":"2026-05-12T12:00:00.5Z","salt":"AQIDBAUGBwgJCgsMDQ4PEA=="}`), Data: []byte(data),
	}.Leaf()
	if err != nil || string(got) != want {
		t.Errorf("leaf\n%q, want\n%q, %v", got, want, err)
	}
}

// Each field counts: an event that differs in one has another record.
func TestRecord_DiffersWithEachField(t *testing.T) {
	base := vectors(t)[0]
	seen := map[audit.Record]string{}
	for name, change := range map[string]func(*vector){
		"nothing":      func(*vector) {},
		"organization": func(v *vector) { v.Organization[15]++ },
		"id":           func(v *vector) { v.EventID[0]++ },
		"stream":       func(v *vector) { v.Stream += "0" },
		"revision":     func(v *vector) { v.Revision++ },
		"type":         func(v *vector) { v.Type = "datapoint.deleted.v2" },
		"time":         func(v *vector) { v.Metadata = strings.Replace(v.Metadata, "123456Z", "123457Z", 1) },
		"metadata":     func(v *vector) { v.Metadata = strings.Replace(v.Metadata, `"schema":1`, `"schema":2`, 1) },
		"salt":         func(v *vector) { v.Metadata = strings.Replace(v.Metadata, `"salt":"A`, `"salt":"B`, 1) },
		"data":         func(v *vector) { v.Data += " " },
		"a byte of the stream in the type": func(v *vector) {
			v.Stream, v.Type = v.Stream[:len(v.Stream)-1], v.Stream[len(v.Stream)-1:]+v.Type
		},
	} {
		v := base
		change(&v)
		record, err := v.event().Record()
		if other, twice := seen[record]; err != nil || twice {
			t.Errorf("changed %s: the record is that of changed %s, %v", name, other, err)
		}
		seen[record] = name
	}
}

func TestLeaf_MetadataIsIncomplete(t *testing.T) {
	for name, meta := range map[string]string{
		"no metadata": ``,
		"no salt":     `{"at":"2026-05-12T12:00:00Z"}`,
		"no time":     `{"schema":1,"salt":"AQIDBAUGBwgJCgsMDQ4PEA=="}`,
		"no text":     `{"at":7,"salt":"AQIDBAUGBwgJCgsMDQ4PEA=="}`,
	} {
		if leaf, err := (audit.Event{Stream: "registry", Meta: []byte(meta)}).Leaf(); err == nil {
			t.Errorf("%s: leaf %x", name, leaf)
		}
	}
}

// The program of the page computes the records of the vectors.
func TestLeaf_ProgramOfThePage(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("there is no python3")
	}
	page, err := os.ReadFile(docs + "leaf.md")
	runtest.Must(t, err)
	_, program, _ := bytes.Cut(page, []byte("```python\n"))
	program, _, ok := bytes.Cut(program, []byte("```"))
	if !ok {
		t.Fatal("the page has no program")
	}
	command := exec.CommandContext(t.Context(), python, "-c", string(program))
	command.Dir = docs
	out, err := command.CombinedOutput()
	if err != nil || bytes.Count(out, []byte("\n")) != len(vectors(t)) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestKeptList_Text(t *testing.T) {
	list := audit.KeptList{
		{uuid.MustParse("00112233-4455-6677-8899-aabbccddeeff"), 0x0102, audit.Record{0: 7, 31: 9}},
		{uuid.New(), 1<<64 - 1, audit.Record{255}},
	}
	text, err := json.Marshal(list)
	runtest.Must(t, err)
	raw, err := base64.StdEncoding.DecodeString(strings.Trim(string(text), `"`))
	first := "00112233445566778899aabbccddeeff" + "0000000000000102" + "07" + strings.Repeat("00", 30) + "09"
	if got := hex.EncodeToString(raw); err != nil || len(raw) != 112 || !strings.HasPrefix(got, first) {
		t.Errorf("%s, want it to begin with %s, %v", got, first, err)
	}
	var again audit.KeptList
	runtest.Must(t, json.Unmarshal(text, &again))
	if diff := cmp.Diff(list, again); diff != "" {
		t.Error(diff)
	}
}

func TestKeptList_NoList(t *testing.T) {
	for _, text := range []string{`"A"`, `"AAAA"`, `"!"`, `7`, `["AAAA"]`} {
		list := audit.KeptList{}
		if err := json.Unmarshal([]byte(text), &list); err == nil {
			t.Errorf("%s is the list %v", text, list)
		}
	}
}

func TestPolicyText(t *testing.T) {
	const witnesses = "# ours\nlog old+1+A\nwitness  w1 w1+2+B https://w1.example\n\ngroup g 1 w1\nquorum g\n"
	keys := []string{"o+1+A", "o+2+B"}
	for of, want := range map[string]string{
		"":        "log o+1+A\nlog o+2+B\nquorum none\n",
		witnesses: "log o+1+A\nlog o+2+B\nwitness w1 w1+2+B https://w1.example\ngroup g 1 w1\nquorum g\n",
	} {
		if got := audit.PolicyText(keys, of); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
