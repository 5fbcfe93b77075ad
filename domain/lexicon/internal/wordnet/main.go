// Command wordnet makes the data files of the package lexicon from the database files of WordNet 3.0:
//
//	go run ./internal/wordnet FROM TO
//
// FROM is the folder with index.noun, noun.exc and their like, and cntlist.rev; TO gets the files.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: wordnet FROM TO")
	}
	from, to := args[0], args[1]
	w, err := readWordNet(from)
	if err != nil {
		return err
	}
	text, err := licence(from)
	if err != nil {
		return err
	}
	bases := w.irregular()
	out := []byte("# Source: WordNet 3.0, exception lists of nouns, verbs, adjectives and adverbs.\n" +
		"# Licence: LICENSE. Selection: README.md. Each line is a form and its base.\n")
	for _, form := range slices.Sorted(maps.Keys(bases)) {
		out = fmt.Appendf(out, "%s %s\n", form, bases[form])
	}
	for name, content := range map[string][]byte{"LICENSE": text, "irregular.txt": out} {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o644); err != nil { //nolint:gosec // source files
			return fmt.Errorf("write data: %w", err)
		}
	}
	return nil
}

// licence returns the licence of WordNet, which each index file begins with: numbered lines.
func licence(from string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(from, "index.noun")) //nolint:gosec // the caller names the folder
	if err != nil {
		return nil, fmt.Errorf("read licence: %w", err)
	}
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		if line[0] != ' ' {
			break
		}
		_, line, _ = bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		out.Write(bytes.TrimSpace(line))
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

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

// irregular returns the irregular forms of words with their bases. A form that is itself a word has none, unless its
// base in that part of speech is more common: "ground" is rather the ground than a form of "grind". If several parts of
// speech have a form, the base that is most common counts.
func (w *wordNet) irregular() map[string]string {
	bases, counts := map[string]string{}, map[string]int{}
	for _, part := range parts {
		for _, fields := range w.exceptions[part] {
			form, base := fields[0], fields[1]
			count := w.tagged[lemma{base, part}]
			if !plain(form) || !plain(base) || form == base || w.words[form] && w.commonness(form) >= count {
				continue
			}
			if _, known := bases[form]; !known || count > counts[form] {
				bases[form], counts[form] = base, count
			}
		}
	}
	ends := make(map[string]string, len(bases))
	for form := range bases {
		if base := end(bases, form); base != form {
			ends[form] = base
		}
	}
	return ends
}

// end follows bases from a form to a word without one. It returns the form if two words are forms of each other.
func end(bases map[string]string, form string) string {
	word := form
	for range bases {
		base, ok := bases[word]
		if !ok {
			return word
		}
		word = base
	}
	return form
}

// plain reports whether a word is letters from a to z alone, at least two.
func plain(word string) bool {
	for i := range len(word) {
		if word[i] < 'a' || word[i] > 'z' {
			return false
		}
	}
	return len(word) > 1
}
