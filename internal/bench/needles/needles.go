// Package needles makes projects of texts of one shape that differ only in one detail, the needle, and measures whether
// recall finds the text with the needle that a question names.
package needles

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	client "github.com/annals-project/annals/client"
)

// MaxTexts is the most texts of one shape in a project: every kind has more needles than that.
const MaxTexts = 1000

// Text is one text of a project. At is when it occurred.
type Text struct {
	ID, Content, Author string
	At                  time.Time
}

// Question asks for the text with the source id Want, by its needle.
type Question struct{ Text, Want string }

// Project is what one project holds, in the order in which it is sent, and what is asked of it.
type Project struct {
	Kind      string
	Authors   Authors
	Times     Times
	Texts     []Text
	Questions []Question
}

// Asker is the identity that asks the questions. It wrote some of the texts.
const Asker = "ana"

// Authors is who wrote the texts of one shape.
type Authors int

// The authors of texts.
const (
	// OneAuthor writes all of them.
	OneAuthor Authors = iota
	// SeveralAuthors write in turn.
	SeveralAuthors
	// NamedAuthors have the needles of other texts as names.
	NamedAuthors
	authorsCount
)

func (a Authors) String() string {
	return [...]string{"one author", "several authors", "named authors"}[a]
}

// Times is when the texts occurred.
type Times int

// The times of texts.
const (
	// OneDay has them a minute apart, DayApart a day, and OneInstant at the same time.
	OneDay Times = iota
	DayApart
	OneInstant
	// Shuffled has them a day apart, sent in another order.
	Shuffled
	timesCount
)

func (t Times) String() string {
	return [...]string{"one day", "a day apart", "one instant", "shuffled"}[t]
}

// Arrangements is how many combinations of templates, authors and times there are.
const Arrangements = templatesCount * int(authorsCount) * int(timesCount)

// templatesCount is how many templates every kind has.
const templatesCount = 2

// Sizes are those of a project.
type Sizes struct {
	// Texts are those of one shape, 1 to MaxTexts; Others are those of everyday content among them.
	Texts, Others int
	// Arrangement chooses the template, the authors and the times, a number from 0 to Arrangements-1.
	Arrangement int
}

// New makes a project of a kind. Equal arguments make equal projects. Every text of the kind is asked for once, in turn
// by its needle alone and by questions with the needle.
func New(kind Kind, sizes Sizes) Project {
	n := sizes.Arrangement
	p := Project{
		Kind: kind.Name, Authors: Authors(n % int(authorsCount)), Times: Times(n / int(authorsCount) % int(timesCount)),
	}
	r := rand.New(rand.NewPCG(seedOf(kind.Name), uint64(n)))
	// Neighbouring arrangements have different templates, and each pair of authors and times has all.
	shape := kind.templates[(n+n/(Arrangements/templatesCount))%templatesCount]
	found := distinct(r, kind.needle, sizes.Texts)
	for i, needle := range found {
		fill := strings.NewReplacer("{n}", needle, "{v}", kind.values[r.IntN(len(kind.values))])
		text := Text{ID: fmt.Sprintf("n%d", i), Content: fill.Replace(shape.text)}
		switch p.Authors {
		case OneAuthor:
			text.Author = Asker
		case SeveralAuthors:
			text.Author = writers[i%len(writers)]
		default:
			text.Author = found[(i+1)%len(found)]
		}
		question := needle
		if forms := len(shape.questions); i%2 == 1 && forms > 0 {
			question = fill.Replace(shape.questions[i/2%forms])
		}
		p.Texts = append(p.Texts, text)
		p.Questions = append(p.Questions, Question{question, text.ID})
	}
	for i, content := range distinct(r, everyday, sizes.Others) {
		p.Texts = append(p.Texts, Text{ID: fmt.Sprintf("e%d", i), Content: content, Author: writers[i%len(writers)]})
	}
	r.Shuffle(len(p.Texts), func(i, j int) { p.Texts[i], p.Texts[j] = p.Texts[j], p.Texts[i] })
	p.date(r)
	return p
}

// writers are the authors of texts that no needle names.
var writers = []string{Asker, "bela", "chidi", "dunja"}

// start is the time of the earliest text. All texts are in the past.
var start = time.Date(2020, 1, 6, 8, 0, 0, 0, time.UTC)

// date sets the times of the texts.
func (p *Project) date(r *rand.Rand) {
	order := make([]int, len(p.Texts))
	for i := range order {
		order[i] = i
	}
	if p.Times == Shuffled {
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for i, n := range order {
		switch p.Times {
		case OneDay:
			p.Texts[i].At = start.Add(time.Duration(n) * time.Minute / 2)
		case OneInstant:
			p.Texts[i].At = start
		default:
			p.Texts[i].At = start.AddDate(0, 0, n)
		}
	}
}

// distinct draws different strings. A source of strings must have more of them than are wanted.
func distinct(r *rand.Rand, draw func(*rand.Rand) string, wanted int) []string {
	list, seen := make([]string, 0, wanted), make(map[string]bool, wanted)
	for tries := 0; len(list) < wanted && tries < 1000*wanted; tries++ {
		if s := draw(r); !seen[s] {
			seen[s] = true
			list = append(list, s)
		}
	}
	return list
}

// seedOf makes a seed of a name.
func seedOf(name string) uint64 {
	seed := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		seed = (seed ^ uint64(b)) * 1099511628211
	}
	return seed
}

// Ranks is the most results of a response that count, and missesOfKind the most misses of a kind that a report lists.
const (
	Ranks        = 10
	missesOfKind = 2
)

// Figures are shares of questions: those whose text is the first result, and those that have it among the first ten.
// Reciprocal is the mean of 1/rank, of 0 beyond the first ten.
type Figures struct {
	Questions  int     `json:"questions"`
	At1        float64 `json:"r1"`
	At10       float64 `json:"r10"`
	Reciprocal float64 `json:"mrr"`
}

// Row holds the figures of one kind.
type Row struct {
	Kind string `json:"kind"`
	Figures
	listed int
}

// Miss is a question whose text was not the first result. Rank is 0 if it was not among the first ten.
type Miss struct {
	Kind     string `json:"kind"`
	Case     string `json:"case"`
	Question string `json:"question"`
	Want     string `json:"want"`
	Got      string `json:"got"`
	Rank     int    `json:"rank"`
}

// Report has the figures of all kinds. Misses are the first of them.
type Report struct {
	Kinds  []Row   `json:"kinds"`
	Total  Figures `json:"total"`
	Misses []Miss  `json:"misses"`
}

// Rank returns the rank of the first result of a source, from 1; 0 if it is not among the first ten. A memory counts
// for its sources.
func Rank(results []client.RecallResult, sourceID string) int {
	for i, r := range results[:min(len(results), Ranks)] {
		if slices.ContainsFunc(r.Sources, func(s client.RecallSource) bool { return s.SourceID == sourceID }) {
			return i + 1
		}
	}
	return 0
}

// Add adds what recall found for the questions of a project, in their order.
func (r *Report) Add(p Project, answers [][]client.RecallResult) {
	at := slices.IndexFunc(r.Kinds, func(row Row) bool { return row.Kind == p.Kind })
	if at < 0 {
		at = len(r.Kinds)
		r.Kinds = append(r.Kinds, Row{Kind: p.Kind})
	}
	contents := make(map[string]string, len(p.Texts))
	for _, t := range p.Texts {
		contents[t.ID] = t.Content
	}
	for i, q := range p.Questions {
		rank := Rank(answers[i], q.Want)
		r.Kinds[at].count(rank)
		r.Total.count(rank)
		if rank == 1 || r.Kinds[at].listed == missesOfKind {
			continue
		}
		r.Kinds[at].listed++
		miss := Miss{
			Kind: p.Kind, Case: fmt.Sprintf("%s, %s", p.Authors, p.Times), Question: q.Text, Want: contents[q.Want], Rank: rank,
		}
		if len(answers[i]) > 0 {
			miss.Got = answers[i][0].Content
		}
		r.Misses = append(r.Misses, miss)
	}
}

// count adds a question to the means.
func (f *Figures) count(rank int) {
	n := float64(f.Questions)
	add := func(mean *float64, value float64) { *mean = (*mean*n + value) / (n + 1) }
	first, found, reciprocal := 0.0, 0.0, 0.0
	if rank > 0 {
		found, reciprocal = 1, 1/float64(rank)
	}
	if rank == 1 {
		first = 1
	}
	add(&f.At1, first)
	add(&f.At10, found)
	add(&f.Reciprocal, reciprocal)
	f.Questions++
}

// Table prints the report.
func (r *Report) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "needle\tquestions\tR@1\tR@10\tMRR")
	for _, row := range append(slices.Clone(r.Kinds), Row{Kind: "total", Figures: r.Total}) {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.3f\t%.3f\t%.3f\n", row.Kind, row.Questions, row.At1, row.At10, row.Reciprocal)
	}
	for _, m := range r.Misses {
		rank := "not among the first ten"
		if m.Rank > 0 {
			rank = fmt.Sprintf("rank %d", m.Rank)
		}
		_, _ = fmt.Fprintf(t, "%s (%s): %q wants %q, %s, got %q\n", m.Kind, m.Case, m.Question, m.Want, rank, m.Got)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

// Check returns an error if less than least of the questions have their text as the first result.
func (r *Report) Check(least float64) error {
	if r.Total.At1 < least {
		return fmt.Errorf("R@1 is %.3f, below %.3f", r.Total.At1, least)
	}
	return nil
}
