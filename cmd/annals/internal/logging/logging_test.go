package logging

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

func TestNew_CountsRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := New(&out, JSON, slog.LevelInfo)
		for range 100 {
			logger.With("part", "a").Warn("the server is away")
		}
		logger.Info("something else")
		<-time.After(repeatsWindow)
		synctest.Wait()
		logger.Warn("the server is away")
		text := out.String()
		if n := strings.Count(text, `"msg":"the server is away"`); n != repeatsShown+1 {
			t.Errorf("%d lines, want %d", n, repeatsShown+1)
		}
		if !strings.Contains(text, `"message":"the server is away","count":80`) || !strings.Contains(text, "something else") ||
			strings.Count(text, "counted instead") != 1 {
			t.Errorf("logged %s", text)
		}
	})
}

func TestNew_DebugLeavesOutNothing(t *testing.T) {
	var out bytes.Buffer
	logger := New(&out, JSON, slog.LevelDebug)
	for range 100 {
		logger.Warn("the server is away")
	}
	if n := strings.Count(out.String(), "\n"); n != 100 {
		t.Errorf("%d lines", n)
	}
}

func TestNew_RepeatsHideNoOtherLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := New(&out, JSON, slog.LevelInfo)
		for range 100 {
			logger.Warn("request")
		}
		logger.Error("request")
		<-time.After(repeatsWindow) // the end of the window writes too
		synctest.Wait()
		if n := strings.Count(out.String(), `"level":"ERROR"`); n != 1 {
			t.Errorf("%d errors after as many warnings as are written", n)
		}
	})
}
