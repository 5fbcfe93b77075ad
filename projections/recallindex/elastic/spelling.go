package elastic

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/annals-project/annals/projections/recallindex"
)

// suggestions is how many terms of a dictionary, the nearest first, are compared with one word. What is
// beyond is no spelling.
const suggestions = 64

// Spellings implements recallindex.Index. A sparse vector cannot be searched for terms that are near, but the
// suggester reads the dictionary of any field. It knows no filter: a second request counts which of
// the terms that it returns are held, and by documents that pass. If it returns none, there is no second one.
func (x *Index) Spellings(ctx context.Context, q recallindex.SpellingQuery) (found [][]string, err error) {
	q.Words = q.Words[:min(len(q.Words), recallindex.MaxSpellingWords)]
	err = x.ask(ctx, func(g generation) error {
		found, err = x.spellings(ctx, g, q)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for spellings: %w", err)
	}
	return found, nil
}

func (x *Index) spellings(ctx context.Context, g generation, q recallindex.SpellingQuery) ([][]string, error) {
	found := make([][]string, len(q.Words))
	if len(q.Words) == 0 || len(q.Audiences) == 0 {
		return found, nil
	}
	near, err := x.suggest(ctx, g, q)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(near, func(of []recallindex.Spelling) bool { return len(of) > 0 }) {
		return found, nil
	}
	words := make([]string, 0, len(q.Words)*suggestions)
	for i, w := range q.Words {
		words = append(words, w.Text)
		for _, s := range near[i] {
			words = append(words, s.Text)
		}
	}
	counts, err := x.countWords(ctx, g, q, words)
	if err != nil {
		return nil, err
	}
	for i := range q.Words {
		held := counts[0].readable > 0
		own := counts[1 : 1+len(near[i])]
		counts = counts[1+len(near[i]):]
		for n := range near[i] {
			near[i][n].Frequency = own[n].all
			if own[n].readable == 0 {
				near[i][n].Text = ""
			}
		}
		if held {
			continue
		}
		recallindex.SortSpellings(near[i])
		for _, s := range near[i] {
			if s.Text != "" && len(found[i]) < q.Size {
				found[i] = append(found[i], s.Text)
			}
		}
	}
	return found, nil
}

// spelledFields are the fields whose words are held: text and label.
var spelledFields = []string{"v", "l"}

// suggest returns the spellings of each word in the dictionaries, each once.
func (x *Index) suggest(
	ctx context.Context, g generation, q recallindex.SpellingQuery,
) ([][]recallindex.Spelling, error) {
	in := prefix(q.Project, recallindex.Sources)
	found, suggest := make([][]recallindex.Spelling, len(q.Words)), map[string]any{}
	name := func(word int, field string) string { return fmt.Sprint(field, word) }
	for i, w := range q.Words {
		for _, field := range spelledFields {
			if w.AllowedEdits() <= 0 {
				continue
			}
			suggest[name(i, field)] = map[string]any{"text": in.feature(w.Text), "term": map[string]any{
				"field": field, "analyzer": "keyword", "suggest_mode": "always", "max_edits": w.AllowedEdits(),
				"prefix_length": utf8.RuneCountInString(string(in)), "size": suggestions, "shard_size": suggestions,
				"accuracy": leastAccuracy, "max_term_freq": anyFrequency,
			}}
		}
	}
	if len(suggest) == 0 {
		return found, nil
	}
	var answer struct {
		Suggest map[string][]struct {
			Options []struct {
				Text string `json:"text"`
			} `json:"options"`
		} `json:"suggest"`
	}
	body := map[string]any{"size": 0, "track_total_hits": false, "suggest": suggest}
	if err := x.searchFor(ctx, g, q.Project, body, []string{"suggest.*.options.text"}, &answer); err != nil {
		return nil, err
	}
	for i, w := range q.Words {
		seen := map[string]struct{}{}
		for _, field := range spelledFields {
			for _, entry := range answer.Suggest[name(i, field)] {
				for _, o := range entry.Options {
					term, ours := strings.CutPrefix(o.Text, string(in))
					s, ok := recallindex.NewSpelling(term, w)
					if _, twice := seen[term]; ours && ok && !twice {
						seen[term] = struct{}{}
						found[i] = append(found[i], s)
					}
				}
			}
		}
	}
	return found, nil
}

// leastAccuracy and anyFrequency switch off what else the suggester requires of a term.
const (
	leastAccuracy = 0.01
	anyFrequency  = 1_000_000_000
)

// wordCount is how many texts and labels hold a word, all and those that pass the filter.
type wordCount struct{ all, readable int }

func (x *Index) countWords(
	ctx context.Context, g generation, q recallindex.SpellingQuery, words []string,
) ([]wordCount, error) {
	in := prefix(q.Project, recallindex.Sources)
	filters := make([]map[string]any, 0, len(spelledFields)*len(words))
	for _, w := range words {
		for _, field := range spelledFields {
			filters = append(filters, map[string]any{"term": map[string]any{field: in.feature(w)}})
		}
	}
	counted := map[string]any{"filters": map[string]any{"filters": filters}}
	type buckets struct {
		Buckets []struct {
			Count int `json:"doc_count"`
		} `json:"buckets"`
	}
	var answer struct {
		Aggregations struct {
			All      buckets `json:"all"`
			Readable struct {
				Words buckets `json:"words"`
			} `json:"readable"`
		} `json:"aggregations"`
	}
	passing := readable(group(q.Project, recallindex.Sources), q.Audiences, q.From, q.To)
	err := x.searchFor(ctx, g, q.Project, map[string]any{
		"size": 0, "track_total_hits": false, "aggs": map[string]any{
			"all": counted,
			"readable": map[string]any{
				"filter": map[string]any{"bool": map[string]any{"filter": passing}},
				"aggs":   map[string]any{"words": counted},
			},
		},
	}, []string{"aggregations.all.buckets.doc_count", "aggregations.readable.words.buckets.doc_count"}, &answer)
	if err != nil {
		return nil, err
	}
	all, some := answer.Aggregations.All.Buckets, answer.Aggregations.Readable.Words.Buckets
	if len(all) != len(filters) || len(some) != len(filters) {
		return nil, fmt.Errorf("elasticsearch counts %d and %d of %d words", len(all), len(some), len(filters))
	}
	counts := make([]wordCount, len(words))
	for i := range filters {
		counts[i/len(spelledFields)].all += all[i].Count
		counts[i/len(spelledFields)].readable += some[i].Count
	}
	return counts, nil
}
