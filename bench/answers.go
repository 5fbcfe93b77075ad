package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	client "github.com/annals-project/annals/client"
)

// Recorded is what a recall answered: the ids of its results, best first.
type Recorded struct {
	Query    string   `json:"query"`
	Identity string   `json:"identity"`
	IDs      []string `json:"ids"`
}

// Questions are questions to record, each with who asks.
type Questions struct {
	// Identity asks those that name nobody.
	Identity string
	// At is the perspective of all: the answers of two programs compare only at one time.
	At    string
	Limit int
}

// Record asks the questions of a file, and writes what they answer, a line of JSON for each. A line of the file is a
// question, or an object with query and identity, such as a line that Record wrote.
func (q Questions) Record(ctx context.Context, to *client.Client, in io.Reader, out io.Writer) (asked int, err error) {
	write := json.NewEncoder(out)
	write.SetEscapeHTML(false)
	err = eachLine(in, func(line string) error {
		one := Recorded{Query: line, Identity: q.Identity}
		if strings.HasPrefix(line, "{") {
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				return fmt.Errorf("read question %d: %w", asked+1, err)
			}
		}
		found, err := to.Recall(ctx, client.RecallRequest{
			Query: one.Query, Identity: one.Identity, Limit: q.Limit, QueryTimestamp: q.At,
		})
		if err != nil {
			return fmt.Errorf("recall %q: %w", one.Query, err)
		}
		one.IDs = make([]string, len(found.Results))
		for i, r := range found.Results {
			one.IDs[i] = r.ID
		}
		asked++
		return write.Encode(one)
	})
	return asked, err
}

// CompareAnswers writes the questions that two recordings answer in another way. The error names how many there are.
func CompareAnswers(before, after io.Reader, out io.Writer) error {
	old, err := readAnswers(before)
	if err != nil {
		return err
	}
	now, err := readAnswers(after)
	if err != nil {
		return err
	}
	if len(old) == 0 || len(old) != len(now) {
		return fmt.Errorf("one recording has %d answers, the other %d", len(old), len(now))
	}
	different := 0
	for i, a := range old {
		b := now[i]
		if a.Query != b.Query || a.Identity != b.Identity {
			return fmt.Errorf("question %d is %q of %s, and %q of %s", i+1, a.Query, a.Identity, b.Query, b.Identity)
		}
		if slices.Equal(a.IDs, b.IDs) {
			continue
		}
		different++
		same := 0
		for same < min(len(a.IDs), len(b.IDs)) && a.IDs[same] == b.IDs[same] {
			same++
		}
		if _, err := fmt.Fprintf(out, "%q: %d and %d results, the first %d are the same\n", a.Query, len(a.IDs), len(b.IDs),
			same); err != nil {
			return fmt.Errorf("write a difference: %w", err)
		}
	}
	if different > 0 {
		return fmt.Errorf("%d of %d answers differ", different, len(old))
	}
	return nil
}

func readAnswers(in io.Reader) (list []Recorded, err error) {
	return list, eachLine(in, func(line string) error {
		var r Recorded
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return fmt.Errorf("read answer %d: %w", len(list)+1, err)
		}
		list = append(list, r)
		return nil
	})
}

// eachLine calls fn for each line that is not blank.
func eachLine(in io.Reader, fn func(line string) error) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line = strings.TrimSpace(line); line != "" {
			if err := fn(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a line: %w", err)
		}
	}
}
