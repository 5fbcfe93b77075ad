package importer

import (
	"errors"
	"strings"
	"testing"
)

// The memories of an export are counted and not sent, each once, however often the import stops.
func TestImport_SkipsMemories(t *testing.T) {
	const memory = `{"type":"memory","sourceId":"a","content":"is derived again"}`
	lines := strings.Join([]string{
		memory, `{"content":"a"}`, memory, memory, `{"content":"b"}`, `{"content":"c"}`, memory, `{"content":"d"}`, memory, memory,
	}, "\n") + "\n"
	for stop := range 5 {
		s, state := &server{}, begin("here")
		for run := 0; ; run++ {
			sent := 0
			s.refuse = func([]string) error {
				if sent++; run == 0 && sent > stop {
					return errors.New("away")
				}
				return nil
			}
			next, err := Import{To: s, In: strings.NewReader(lines), State: state, Parallel: 1, Items: 1}.Run(t.Context())
			if state = next; err == nil {
				break
			}
			if run > 0 {
				t.Fatal(err)
			}
		}
		if got := strings.Join(s.taken, ""); got != "abcd" || state.Skipped != 6 || state.Points != 4 {
			t.Errorf("stopped after %d: sent %s, state %+v", stop, got, state)
		}
	}
}

func TestCheck_OtherTypesAreRefused(t *testing.T) {
	for _, line := range []string{`{"type":"person","content":"a"}`, `{"type":7}`, `["memory"]`} {
		if _, err := Check(strings.NewReader(line)); err == nil {
			t.Errorf("%s is taken", line)
		}
	}
}
