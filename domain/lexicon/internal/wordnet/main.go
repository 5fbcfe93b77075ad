// Command wordnet makes the data files of the package lexicon from the database files of WordNet 3.0:
//
//	go run ./internal/wordnet FROM TO
//
// FROM is the folder with index.noun, noun.exc and their like, and cntlist.rev; TO gets the files.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
