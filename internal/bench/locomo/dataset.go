// Package locomo reads the LoCoMo data set: dialogues of two people with questions whose evidence
// is known.
package locomo

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/score"
)

// Adversarial is the category of questions that the dialogue does not answer; they are excluded.
const Adversarial = 5

// categoryName names a category of questions.
func categoryName(category int) string {
	names := []string{1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", Adversarial: "adversarial"}
	if category < 1 || category >= len(names) {
		return "category " + strconv.Itoa(category)
	}
	return names[category]
}

// Conversation is one dialogue with its questions.
type Conversation struct {
	ID        string
	Turns     []Turn
	Questions []Question
	// Skipped counts the questions without evidence, which cannot be measured.
	Skipped int
}

// Turn is one message.
type Turn struct {
	// ID names the turn within the dialogue, such as D3:14.
	ID      string
	Speaker string
	Text    string
	// Caption describes the image of the turn, "" if there is none.
	Caption string
	Session int
	At      time.Time
}

// Question is answered by one or more turns.
type Question struct {
	Text     string
	Category int
	// Evidence are the ids of the turns, each once.
	Evidence []string
}

// file is a conversation as the data set writes it; each session has its own key.
type file struct {
	SampleID     string                     `json:"sample_id"`
	Conversation map[string]json.RawMessage `json:"conversation"`
	QA           []struct {
		Question string   `json:"question"`
		Evidence []string `json:"evidence"`
		Category int      `json:"category"`
	} `json:"qa"`
}

// sessionTime is how the data set writes the start of a session, without a zone: it is taken as
// UTC.
const sessionTime = "3:04 pm on 2 January, 2006"

var sessionKey = regexp.MustCompile(`^session_(\d+)$`)

// Read reads one conversation.
func Read(r io.Reader) (Conversation, error) {
	var f file
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return Conversation{}, fmt.Errorf("read conversation: %w", err)
	}
	if f.SampleID == "" || len(f.Conversation) == 0 {
		return Conversation{}, fmt.Errorf("read conversation: no sample_id or no conversation in it")
	}
	c := Conversation{ID: f.SampleID}
	for _, key := range slices.Sorted(maps.Keys(f.Conversation)) {
		if m := sessionKey.FindStringSubmatch(key); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				return Conversation{}, fmt.Errorf("%s of %s: %w", key, c.ID, err)
			}
			turns, err := f.session(key, n)
			if err != nil {
				return Conversation{}, fmt.Errorf("%s of %s: %w", key, c.ID, err)
			}
			c.Turns = append(c.Turns, turns...)
		}
	}
	slices.SortStableFunc(c.Turns, func(a, b Turn) int { return a.Session - b.Session })
	known := map[string]bool{}
	for _, t := range c.Turns {
		known[t.ID] = true
	}
	for _, q := range f.QA {
		evidence := turnIDs(q.Evidence, known)
		if len(evidence) == 0 {
			c.Skipped++
			continue
		}
		c.Questions = append(c.Questions, Question{q.Question, q.Category, evidence})
	}
	return c, nil
}

// session reads the turns of one session: the first at its start, each next one a second later.
func (f file) session(key string, number int) ([]Turn, error) {
	var messages []struct {
		Speaker string `json:"speaker"`
		ID      string `json:"dia_id"`
		Text    string `json:"text"`
		Caption string `json:"blip_caption"`
	}
	if err := json.Unmarshal(f.Conversation[key], &messages); err != nil {
		return nil, fmt.Errorf("turns: %w", err)
	}
	var began string
	if err := json.Unmarshal(f.Conversation[key+"_date_time"], &began); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	start, err := time.Parse(sessionTime, began)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	var turns []Turn
	for i, t := range messages {
		turns = append(turns, Turn{
			ID: t.ID, Speaker: t.Speaker, Text: t.Text, Caption: t.Caption,
			Session: number, At: start.Add(time.Duration(i) * time.Second),
		})
	}
	return turns, nil
}

var turnID = regexp.MustCompile(`D:?0*(\d+):0*(\d+)`)

// turnIDs reads evidence as the data set writes it: sometimes several ids in one string ("D8:6;
// D9:17"), an id with an extra colon ("D:11:26") or with a zero ("D30:05"). It drops what is not a
// turn.
func turnIDs(written []string, known map[string]bool) []string {
	var ids []string
	for _, w := range written {
		for _, m := range turnID.FindAllStringSubmatch(w, -1) {
			id := "D" + m[1] + ":" + m[2]
			if known[id] && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// SourceID is the source id of a turn.
func (c Conversation) SourceID(turn string) string { return c.ID + "/" + turn }

// DataPoints returns the turns as data points to send, oldest first.
func (c Conversation) DataPoints() []client.DataPoint {
	dataPoints := make([]client.DataPoint, len(c.Turns))
	for i, t := range c.Turns {
		content := t.Text
		if t.Caption != "" {
			content = strings.TrimSpace(content + "\n[" + t.Caption + "]")
		}
		dataPoints[i] = client.DataPoint{
			Content:   content,
			ID:        c.SourceID(t.ID),
			Label:     fmt.Sprintf("%s, session %d", t.Speaker, t.Session),
			Timestamp: t.At.Format(time.RFC3339),
			Identity:  t.Speaker,
		}
	}
	return dataPoints
}

// AskedAt is a time after the last session, at which the questions are asked.
func (c Conversation) AskedAt() time.Time {
	var last time.Time
	for _, t := range c.Turns {
		if t.At.After(last) {
			last = t.At
		}
	}
	return last.Add(time.Hour)
}

// Dialogue returns the conversation with its questions for a measurement.
func (c Conversation) Dialogue() score.Dialogue {
	d := score.Dialogue{ID: c.ID, DataPoints: c.DataPoints(), AskedAt: c.AskedAt(), Skipped: c.Skipped}
	if len(c.Turns) > 0 {
		d.Asker = c.Turns[0].Speaker
	}
	for _, q := range c.Questions {
		question := score.Question{Text: q.Text, Category: categoryName(q.Category), Excluded: q.Category == Adversarial}
		for _, turn := range q.Evidence {
			question.Evidence = append(question.Evidence, c.SourceID(turn))
		}
		d.Questions = append(d.Questions, question)
	}
	return d
}
