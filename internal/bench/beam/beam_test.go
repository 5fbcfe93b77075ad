package beam_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/beam"
	"github.com/annals-project/annals/internal/bench/score"
)

const chat = `[
	{"batch_number": 1, "turns": [[{"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "Hello"}, {"role": "assistant", "id": 1, "content": "Hi"}]]},
	{"batch_number": 2, "turns": [[{"role": "user", "id": 2, "time_anchor": "April-05-2024", "content": "More"}]]}
]`

const questions = `{
	"summarization": [{"question": "All?", "source_chat_ids": [2, 0, 0, 99]}],
	"knowledge_update": [{"question": "Now?", "source_chat_ids": {"original_info": [0], "updated_info": [2]}}],
	"abstention": [{"question": "Never?"}]
}`

func folder(t *testing.T, chat, questions string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chat-1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"chat.json": chat, "probing_questions.json": questions} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRead(t *testing.T) {
	got, err := beam.Read(folder(t, chat, questions))
	if err != nil {
		t.Fatal(err)
	}
	if !got.AskedAt.After(got.AskedAt.Truncate(24 * 60 * 60 * 1e9)) {
		t.Errorf("asked at %s", got.AskedAt)
	}
	want := score.Dialogue{
		ID: "chat-1", Asker: "user", AskedAt: got.AskedAt, Skipped: 1,
		DataPoints: []client.DataPoint{
			{Content: "Hello", ID: "chat-1/0", Label: "user, part 1", Timestamp: "2024-03-15T00:00:01Z", Identity: "user"},
			{Content: "Hi", ID: "chat-1/1", Label: "assistant, part 1", Timestamp: "2024-03-15T00:00:02Z", Identity: "assistant"},
			{Content: "More", ID: "chat-1/2", Label: "user, part 2", Timestamp: "2024-04-05T00:00:01Z", Identity: "user"},
		},
		Questions: []score.Question{
			{Text: "Now?", Category: "knowledge update", Evidence: []string{"chat-1/0", "chat-1/2"}},
			{Text: "All?", Category: "summarization", Excluded: true, Evidence: []string{"chat-1/0", "chat-1/2"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRead_NotAChat(t *testing.T) {
	for name, dir := range map[string]string{
		"nothing":         t.TempDir(),
		"no JSON":         folder(t, "Hello", questions),
		"no message":      folder(t, "[]", questions),
		"no questions":    folder(t, chat, "?"),
		"no first day":    folder(t, strings.Replace(chat, "March-15-2024", "", 1), questions),
		"a day of no use": folder(t, strings.Replace(chat, "March-15-2024", "soon", 1), questions),
		"an id twice":     folder(t, strings.Replace(chat, `"id": 2`, `"id": 1`, 1), questions),
	} {
		if _, err := beam.Read(dir); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
