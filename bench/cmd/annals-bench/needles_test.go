package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/bench/needles"
)

func TestBenchNeedles_Report(t *testing.T) {
	f, dir := startFake(t)
	args := []string{"needles", "--data-dir", dir, "--texts", "2", "--others", "1", "--rounds", "2"}
	got := measured(t, append(args, "--json")...)
	var report needles.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	// The server finds every text that has a word of the question, in the order in which they were sent.
	kinds := len(needles.Kinds())
	if f.projects != 2*kinds || len(f.texts["svc_sk_p1"]) != 3 || len(report.Kinds) != kinds ||
		report.Total.Questions != 4*kinds || report.Total.At1 >= 1 || report.Total.At10 < 0.9 || len(report.Misses) == 0 {
		t.Errorf("%d projects, got %+v", f.projects, report.Total)
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
	_, dir := startFake(t)
	got := measured(t, "needles", "--data-dir", dir, "--model", "m")
	if got.code != exitFailed || !strings.Contains(got.stderr, "--model is for --own") {
		t.Errorf("got %+v", got)
	}
}
