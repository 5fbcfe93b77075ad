// Package beam reads the BEAM data set: chats with an assistant and questions that probe its
// memory.
package beam

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/score"
)

// asker is the role of the user who asks the questions.
const asker = "user"

// anchor is the format of days in the data set.
const anchor = "January-02-2006"

// excluded are the categories whose questions do not concern facts in the chat.
var excluded = []string{"event_ordering", "instruction_following", "preference_following", "summarization"}

type message struct {
	ID      int    `json:"id"`
	Role    string `json:"role"`
	Content string `json:"content"`
	Day     string `json:"time_anchor"`
}

// Read reads one chat: the folder with chat.json and probing_questions.json. Messages are a second
// apart, from the day that the chat names.
func Read(dir string) (score.Dialogue, error) {
	d := score.Dialogue{ID: filepath.Base(filepath.Clean(dir)), Asker: asker}
	var batches []struct {
		Turns [][]message `json:"turns"`
	}
	if err := decode(filepath.Join(dir, "chat.json"), &batches); err != nil {
		return d, err
	}
	var at time.Time
	known := map[string]bool{}
	for n, batch := range batches {
		for _, turn := range batch.Turns {
			for _, m := range turn {
				if m.Day != "" {
					day, err := time.Parse(anchor, m.Day)
					if err != nil {
						return d, fmt.Errorf("day of message %d: %w", m.ID, err)
					}
					at = day
				}
				if at.IsZero() {
					return d, fmt.Errorf("message %d comes before the first day", m.ID)
				}
				at = at.Add(time.Second)
				id := sourceID(d.ID, m.ID)
				if known[id] {
					return d, fmt.Errorf("two messages have the id %d", m.ID)
				}
				known[id] = true
				d.DataPoints = append(d.DataPoints, client.DataPoint{
					Content: m.Content, ID: id, Label: fmt.Sprintf("%s, part %d", m.Role, n+1), Timestamp: at.Format(time.RFC3339),
					Identity: m.Role,
				})
			}
		}
	}
	if len(d.DataPoints) == 0 {
		return d, errors.New("the chat holds no message")
	}
	d.AskedAt = at.Add(time.Hour)
	return d, readQuestions(dir, &d, known)
}

// readQuestions reads the questions whose evidence is in the chat.
func readQuestions(dir string, d *score.Dialogue, known map[string]bool) error {
	var categories map[string][]struct {
		Question string          `json:"question"`
		Evidence json.RawMessage `json:"source_chat_ids"`
	}
	if err := decode(filepath.Join(dir, "probing_questions.json"), &categories); err != nil {
		return err
	}
	for category, questions := range categories {
		for _, q := range questions {
			var ids any
			if len(q.Evidence) > 0 {
				if err := json.Unmarshal(q.Evidence, &ids); err != nil {
					return fmt.Errorf("evidence of %q: %w", q.Question, err)
				}
			}
			question := score.Question{
				Text: q.Question, Category: strings.ReplaceAll(category, "_", " "), Excluded: slices.Contains(excluded, category),
				Evidence: evidence(d.ID, ids, known),
			}
			if len(question.Evidence) == 0 {
				d.Skipped++
				continue
			}
			d.Questions = append(d.Questions, question)
		}
	}
	slices.SortStableFunc(d.Questions, func(a, b score.Question) int { return strings.Compare(a.Category, b.Category) })
	return nil
}

// evidence returns the source ids of all numbers in a value, at any depth, that name a message.
func evidence(chat string, value any, known map[string]bool) []string {
	var ids []string
	switch v := value.(type) {
	case float64:
		if id := sourceID(chat, int(v)); known[id] {
			ids = append(ids, id)
		}
	case []any:
		for _, element := range v {
			ids = append(ids, evidence(chat, element, known)...)
		}
	case map[string]any:
		for _, element := range v {
			ids = append(ids, evidence(chat, element, known)...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func sourceID(chat string, message int) string { return chat + "/" + strconv.Itoa(message) }

func decode(name string, into any) error {
	data, err := os.ReadFile(name) //nolint:gosec // the operator names the folder
	if err != nil {
		return fmt.Errorf("read chat: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}
