package logging

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"
)

func TestNew_Formats(t *testing.T) {
	for format, want := range map[Format]string{
		Text: `^\d\d:\d\d:\d\d\.\d{3} WARN "disk is full" msg=7 part=a time=b\n$`,
		JSON: `^\{"time":"[^"]+","level":"WARN","msg":"disk is full","msg":7,"part":"a","time":"b"\}\n$`,
		Auto: `^\{"time":`, // a buffer is no terminal
	} {
		var out bytes.Buffer
		logger := New(&out, format, slog.LevelWarn)
		logger.Info("not logged")
		logger.Warn("disk is full", "msg", 7, "part", "a", "time", "b")
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("%s: got %q, want %s", format, &out, want)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Format{"": Auto, "auto": Auto, "text": Text, "json": JSON} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := Parse("yaml"); err == nil || !strings.Contains(err.Error(), "want auto, text or json") {
		t.Errorf("got %v", err)
	}
}
