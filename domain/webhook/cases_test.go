package webhook_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/webhook"
)

// eventCase is an event with what it must become.
type eventCase struct {
	Case        string
	Settings    struct{ Content, ID, At string }
	ContentType string
	Hex         string
	Body        json.RawMessage
	Headers     map[string]string
	Want        struct {
		ID, Content, At string
		Dropped         bool
	}
}

// The open cases of events become what they must. One that is packed is refused before its body is read.
func TestCases_Webhooks(t *testing.T) {
	folder := os.Getenv("ANNALS_TEST_CASES")
	if folder == "" {
		t.Skip("ANNALS_TEST_CASES names no folder of cases")
	}
	text, err := os.ReadFile(filepath.Join(folder, "webhooks4.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var c eventCase
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if c.Headers["Content-Encoding"] != "" || c.Case == "H04" { // which of two late events counts is the store's
			continue
		}
		body := []byte(c.Body)
		if c.Hex != "" {
			if body, err = hex.DecodeString(c.Hex); err != nil {
				t.Fatal(err)
			}
		}
		m := compile(t, webhook.Settings{
			ContentPath: c.Settings.Content, IDPath: c.Settings.ID, OccurredAtPath: c.Settings.At,
		})
		got := m.Map(webhook.Plain(c.ContentType, body))
		at := ""
		if !got.OccurredAt.IsZero() {
			at = got.OccurredAt.Format(time.RFC3339Nano)
		}
		if c.Want.Dropped != (got.DroppedBy != "") || c.Want.ID != got.ID && c.Want.ID != "" ||
			c.Want.Content != "" && c.Want.Content != got.Content || c.Want.At != "" && c.Want.At != at {
			t.Errorf("%s: %+v at %s, want %+v", c.Case, got, at, c.Want)
		}
	}
}
