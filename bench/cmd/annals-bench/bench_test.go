package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/needles"
	"github.com/annals-project/annals/internal/bench/score"
	"github.com/annals-project/annals/internal/fakeapitest"
	"github.com/annals-project/annals/internal/runtest"
)

const conversation = `{"sample_id": "talk-1",
  "conversation": {"speaker_a": "Ana", "speaker_b": "Ben", "session_1_date_time": "1:56 pm on 8 May, 2024",
    "session_1": [{"speaker": "Ana", "dia_id": "D1:1", "text": "I like green tea."}, {"speaker": "Ben", "dia_id": "D1:2", "text": "I sail a boat."}]},
  "qa": [{"question": "tea", "answer": "x", "evidence": ["D1:1"], "category": 4}, {"question": "plane", "answer": "x", "evidence": ["D1:2"], "category": 1}]}`

func TestBenchRecall_Locomo(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	one := fakeapitest.Write(t, "one.json", conversation)
	two := fakeapitest.Write(t, "two.json", strings.ReplaceAll(conversation, "talk-1", "talk-2"))
	got := measured(t, "recall", "locomo", one, two, "--data-dir", dir, "--json")
	var report score.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if report.Dialogues != 2 || report.Turns != 4 || report.Overall.At[10] != 0.5 ||
		report.Categories["single-hop"].At[5] != 1 {
		t.Errorf("got %+v", report)
	}
	if f.Projects != 2 || len(f.Texts["svc_sk_p1"]) != 2 || f.Texts["svc_sk_p2"][0].ID != "talk-2/D1:1" {
		t.Errorf("the server took %+v", f.Texts)
	}
}

func TestBenchRecall_OneProject(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	one := fakeapitest.Write(t, "one.json", conversation)
	other := strings.NewReplacer("talk-1", "talk-2", "Ana", "Cem", "8 May", "9 June")
	two := fakeapitest.Write(t, "two.json", other.Replace(conversation))
	args := []string{"recall", "locomo", "--one-project", "--ablate", "--fit", "--data-dir", dir, "--json"}
	got := measured(t, append(args, one, two)...)
	var report score.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if report.Dialogues != 2 || report.Turns != 4 || report.Overall.Questions != 4 || report.Overall.At[10] != 0.5 ||
		len(report.Ablation) == 0 || report.Fit == nil {
		t.Errorf("got %+v", report)
	}
	var ids []string
	for _, p := range f.Texts["svc_sk_p1"] {
		ids = append(ids, p.ID)
	}
	if f.Projects != 1 || strings.Join(ids, " ") != "talk-1/D1:1 talk-1/D1:2 talk-2/D1:1 talk-2/D1:2" {
		t.Errorf("%d projects took %v", f.Projects, ids)
	}
	for i, want := range []client.RecallRequest{
		{Query: "tea", Identity: "Ana", QueryTimestamp: "2024-05-08T14:56:01Z"},
		{Query: "tea", Identity: "Cem", QueryTimestamp: "2024-06-09T14:56:01Z"},
	} {
		if got := f.Recalls[2*i]; got.Query != want.Query || got.Identity != want.Identity ||
			got.QueryTimestamp != want.QueryTimestamp {
			t.Errorf("dialogue %d asks %+v, want %+v", i+1, got, want)
		}
	}
	if !strings.Contains(got.stderr, "talk-1, talk-2: 4 turns in project p1") {
		t.Errorf("it prints %s", got.stderr)
	}
}

func TestBenchRecall_OneProjectTwiceTheSame(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	file := fakeapitest.Write(t, "one.json", conversation)
	got := measured(t, "recall", "locomo", "--one-project", "--data-dir", dir, file, file)
	if got.code != exitFailed || !strings.Contains(got.stderr, "--one-project needs dialogues of different ids") {
		t.Errorf("got %+v", got)
	}
	if f.Projects != 0 {
		t.Errorf("it created %d projects first", f.Projects)
	}
}

func TestBenchRecall_LocomoBelowItsBounds(t *testing.T) {
	_, dir := fakeapitest.Start(t)
	file := fakeapitest.Write(t, "one.json", conversation)
	got := measured(t, "recall", "locomo", file, "--data-dir", dir, "--min-r10=0.6",
		"--min-r100=0.5")
	if got.code != exitFailed || !strings.Contains(got.stderr, "R@10 is 0.500, below 0.600") ||
		strings.Contains(got.stderr, "R@100") {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(got.stdout, "single-hop") {
		t.Errorf("the table is missing: %s", got.stdout)
	}
}

func TestBenchRecall_Beam(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	chat := t.TempDir()
	for name, text := range map[string]string{
		"chat.json": `[{"batch_number": 1, "turns": [[
			{"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "My deadline is Friday"}, {"role": "assistant", "id": 1, "content": "Noted: a deadline"}
		]]}]`,
		"probing_questions.json": `{"information_extraction": [{"question": "deadline", "source_chat_ids": [0]}], "summarization": [{"question": "deadline", "source_chat_ids": {"all": [[0], 1]}}],
			"abstention": [{"question": "plane"}]}`,
	} {
		runtest.Must(t, os.WriteFile(filepath.Join(chat, name), []byte(text), 0o600))
	}
	got := measured(t, "recall", "beam", chat, "--data-dir", dir, "--json", "--ablate",
		"--min-gain=0.1")
	var report score.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if report.Turns != 2 || report.Skipped != 1 || report.Overall.Questions != 1 ||
		report.Overall.Within[8000] != 1 || report.Baseline.Within[8000] != 1 ||
		len(report.Ablation) < 10 || report.Ablation[0].Score.At[5] != 1 {
		t.Errorf("got %+v", report)
	}
	if got.code != exitFailed ||
		!strings.Contains(got.stderr, "the gain over BM25 within 8,000 tokens is 0.000, below 0.100") {
		t.Errorf("got %+v", got)
	}
	if len(f.Texts["svc_sk_p1"]) != 2 || f.Texts["svc_sk_p1"][1].Timestamp != "2024-03-15T00:00:02Z" {
		t.Errorf("the server took %+v", f.Texts)
	}
}

func TestBenchLoad_Bounds(t *testing.T) {
	for _, flag := range []string{
		"--clients=0", "--clients=1000", "--for=1h", "--batches=0", "--passages=5", "--queries=0",
	} {
		if got := measured(t, "load", flag); got.code != exitUsage {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

func TestBenchDirectory_Bounds(t *testing.T) {
	for _, flag := range []string{
		"--identities=999", "--rules=0", "--rules=1001", "--passages=5", "--puts=0", "--queries=0",
	} {
		if got := measured(t, "directory", flag); got.code != exitUsage {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

func TestBenchSize_Bounds(t *testing.T) {
	for _, flag := range []string{"--passages=999", "--passages=2000,1000", "--passages=3000000", "--queries=0"} {
		if got := measured(t, "size", flag); got.code != exitUsage {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

func TestBenchSustained_Bounds(t *testing.T) {
	for _, flag := range []string{
		"--rate=0", "--rate=20001", "--over=-1", "--for=0s", "--for=2h", "--projects=0", "--projects=1001",
		"--under-way=0", "--under-way=5000", "--passages=-1", "--burst=6m", "--program=no-such-file",
	} {
		if got := measured(t, "sustained", flag); got.code != exitUsage {
			t.Errorf("%s: %+v", flag, got)
		}
	}
}

func TestBenchNeedles_Report(t *testing.T) {
	f, dir := fakeapitest.Start(t)
	args := []string{"needles", "--data-dir", dir, "--texts", "2", "--others", "1", "--rounds", "2"}
	got := measured(t, append(args, "--json")...)
	var report needles.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	// The server finds every text that has a word of the question, in the order in which they were sent.
	kinds := len(needles.Kinds())
	if f.Projects != 2*kinds || len(f.Texts["svc_sk_p1"]) != 3 || len(report.Kinds) != kinds ||
		report.Total.Questions != 4*kinds || report.Total.At1 >= 1 || report.Total.At10 < 0.9 || len(report.Misses) == 0 {
		t.Errorf("%d projects, got %+v", f.Projects, report.Total)
	}
	got = measured(t, append(args, "--min-r1=1")...)
	if got.code != exitFailed || !strings.Contains(got.stderr, "R@1 is 0.") || !strings.Contains(got.stdout, "wants") {
		t.Errorf("got %+v", got)
	}
}

func TestBenchNeedles_Bounds(t *testing.T) {
	for _, flag := range []string{"--texts=1", "--texts=1001", "--others=-1", "--others=501", "--rounds=0", "--rounds=25"} {
		if got := measured(t, "needles", flag); got.code != exitUsage {
			t.Errorf("%s: %+v", flag, got)
		}
	}
	_, dir := fakeapitest.Start(t)
	got := measured(t, "needles", "--data-dir", dir, "--model", "m")
	if got.code != exitFailed || !strings.Contains(got.stderr, "--model is for --own") {
		t.Errorf("got %+v", got)
	}
}
