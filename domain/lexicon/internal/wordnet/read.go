package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// parts are the parts of speech, as the names of WordNet's files have them.
var parts = []string{"noun", "verb", "adj", "adv"}

// partOf is the part of speech by its digit in a sense key.
var partOf = map[string]string{"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}

// lemma is a word in one part of speech.
type lemma struct{ word, part string }

// wordNet is the part of WordNet that this program reads.
type wordNet struct {
	// exceptions are "form base…" by part of speech.
	exceptions map[string][][]string
	// tagged is how often a lemma occurs in the texts that WordNet's authors tagged with senses.
	tagged map[lemma]int
	// words are all lemmas.
	words map[string]bool
}

// readWordNet reads files of a folder.
func readWordNet(dir string) (*wordNet, error) {
	w := &wordNet{exceptions: map[string][][]string{}, tagged: map[lemma]int{}, words: map[string]bool{}}
	addWord := func(fields []string) error {
		w.words[fields[0]] = true
		return nil
	}
	for _, part := range parts {
		parse := func(fields []string) error {
			if len(fields) < 2 {
				return fmt.Errorf("%q has no base", fields[0])
			}
			w.exceptions[part] = append(w.exceptions[part], slices.Clone(fields))
			return nil
		}
		if err := readLines(filepath.Join(dir, part+".exc"), parse); err != nil {
			return nil, err
		}
		if err := readLines(filepath.Join(dir, "index."+part), addWord); err != nil {
			return nil, err
		}
	}
	return w, readLines(filepath.Join(dir, "cntlist.rev"), w.parseCount)
}

// readLines calls parse with the fields of each line that has any.
func readLines(name string, parse func(fields []string) error) error {
	f, err := os.Open(name) //nolint:gosec // the caller names the folder
	if err != nil {
		return fmt.Errorf("read WordNet: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for number := 1; lines.Scan(); number++ {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 {
			if err := parse(fields); err != nil {
				return fmt.Errorf("line %d of %s: %w", number, name, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

// parseCount reads "word%type:file:id:head:headid sense count".
func (w *wordNet) parseCount(fields []string) error {
	word, key, _ := strings.Cut(fields[0], "%")
	digit, _, _ := strings.Cut(key, ":")
	if len(fields) != 3 || partOf[digit] == "" {
		return fmt.Errorf("no count of a sense: %q", fields)
	}
	count, err := strconv.Atoi(fields[2])
	if err != nil {
		return fmt.Errorf("count of a sense: %w", err)
	}
	w.tagged[lemma{word, partOf[digit]}] += count
	return nil
}

// commonness is how often a word occurs in the tagged texts.
func (w *wordNet) commonness(word string) (sum int) {
	for _, part := range parts {
		sum += w.tagged[lemma{word, part}]
	}
	return sum
}
