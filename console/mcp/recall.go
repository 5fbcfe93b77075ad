package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/annals-project/annals/domain/fault"
	domainrecall "github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/httpx"
	"github.com/annals-project/annals/projections/recall"
)

// everything is the query that lists the newest texts.
const everything = "*"

// actRecall recalls. Long texts of the answer are cut to their best passages.
func actRecall(ctx context.Context, u *use) (answer object, o omitted, err error) {
	query, err := u.args.string("query")
	if err != nil {
		return nil, o, err
	}
	if strings.TrimSpace(query) == everything {
		answer, o, err = u.newest(ctx)
	} else if answer, o, err = u.ask(ctx, httpx.InnerCall{}); err == nil {
		u.authors, err = u.DataPoints.Authors(ctx, u.p.Project, sourcesOf(answer))
	}
	if err != nil {
		return nil, o, err
	}
	u.listsNewest = strings.TrimSpace(query) == everything
	return answer, o, u.condense(ctx, query, answer, &o)
}

// newest lists the newest texts that the identity may read, as a recall does.
func (u *use) newest(ctx context.Context) (answer object, o omitted, err error) {
	limit := 0
	if json.Unmarshal(u.args["limit"], &limit) != nil || limit < 1 {
		return nil, o, fault.New(fault.Invalid, fault.CodeInvalidRequest, "limit must be a whole number from 1 on")
	}
	if u.identity == "" {
		return nil, o, fault.New(fault.Invalid, fault.CodeIdentityRequired, "identity is required, and not blank")
	}
	var texts []recall.Text
	left := 0
	u.authors = map[string]string{}
	_, err = u.API.Do(ctx, u.asRecall(func(c echo.Context) (err error) {
		note := httpx.NoteOf(c)
		note.Identity = u.identity
		texts, left, err = u.Texts.Newest(c.Request().Context(), recall.NewestQuery{
			Project: u.p.Project, Organization: u.p.OrganizationID, Identity: u.identity, Limit: limit,
		})
		for _, t := range texts {
			note.IDs = append(note.IDs, stream.DataPointID(u.p.Project.Namespace, t.SourceID))
		}
		return err
	}))
	if err != nil {
		return nil, o, err
	}
	if left > 0 {
		o.Counts = map[string]int{"results": left}
	}
	results, tokens := []any{}, 0
	for i, t := range texts {
		at := t.OccurredAt.Format(time.RFC3339Nano)
		source := object{"sourceId": t.SourceID, "occurredAt": at, "excerpts": []any{}}
		if t.Label != nil {
			source["label"] = *t.Label
		}
		results = append(results, object{
			"id": t.Node.String(), "rank": i + 1, "occurredAt": at, "content": t.Content,
			"artifact": object{"id": t.Node.String(), "kind": recall.KindSource, "occurredAt": at}, "sources": []any{source},
		})
		u.authors[t.SourceID] = t.Author
		tokens += domainrecall.Tokens(t.Content)
	}
	return object{
		"asOf": time.Now().UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano), "usedEvidenceTokens": tokens,
		"results": results,
	}, o, nil
}

// parts are the passages that take the place of a long text.
type parts struct {
	characters int
	// at are the characters at which the passages begin.
	at    []int
	texts []string
}

// condensed are the characters that a text may have before its best passages take its place, and how many do.
var condensed = []struct{ most, passages int }{{maxDocument, domainrecall.PassagesOfSource}, {2_000, 2}, {1_000, 1}}

// condense cuts the long texts of a recall to their best passages: of more texts, the more there is to show.
func (u *use) condense(ctx context.Context, query string, answer object, o *omitted) error {
	results, _ := answer["results"].([]any)
	whole, ranked := make([]string, len(results)), make([]parts, len(results))
	for i, r := range results {
		result, _ := r.(object)
		whole[i], _ = result["content"].(string)
		if utf8.RuneCountInString(whole[i]) > condensed[len(condensed)-1].most {
			ranked[i] = passagesOf(query, whole[i])
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	for _, step := range condensed {
		u.parts, u.spans = map[int]parts{}, nil
		total, left := 0, 0
		for i, r := range results {
			result, _ := r.(object)
			text := whole[i]
			if ranked[i].characters > step.most {
				of := ranked[i].best(step.passages)
				u.parts[i], text = of, strings.Join(of.texts, "\n…\n")
				u.noteParts(i, whole[i], of)
				left += of.characters - utf8.RuneCountInString(strings.Join(of.texts, ""))
			}
			result["content"] = text
			total += weight(text)
		}
		if left > 0 {
			if o.Counts == nil {
				o.Counts = map[string]int{}
			}
			o.Counts[contentLeft] = left
		}
		if total <= maxText*9/10 && size(answer) <= maxStructured {
			break
		}
	}
	return ctx.Err()
}

// contentLeft counts the characters of texts that passages stand for.
const contentLeft = "characters of content"

// words finds the words of a question in texts.
var words = domainrecall.NewAnalyzer()

// passagesOf are the passages of a text, best first: a word of the question counts the more, the fewer passages have
// it.
func passagesOf(query, text string) parts {
	terms := words.Query(query)
	type passage struct {
		at     int
		text   string
		counts []domainrecall.Count
		length int
		score  float64
	}
	var list []passage
	statistics := domainrecall.Statistics{Frequencies: make([]domainrecall.Count, len(terms))}
	from, characters := 0, 0
	for _, span := range domainrecall.Numbered(text) {
		characters += utf8.RuneCountInString(text[from:span.Start])
		from = span.Start
		found := words.Terms(text[span.Start:span.End])
		p := passage{
			at: characters, text: strings.TrimSpace(text[span.Start:span.End]), length: len(found),
			counts: domainrecall.Counts(terms, domainrecall.Terms{Text: found}),
		}
		for i, c := range p.counts {
			if c.Text > 0 {
				statistics.Frequencies[i].Text++
			}
		}
		list = append(list, p)
	}
	statistics.Docs = len(list)
	weights := statistics.Weights(terms).Shared(terms)
	for i := range list {
		list[i].score = weights.Score(list[i].counts, list[i].length)
	}
	slices.SortStableFunc(list, func(a, b passage) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return a.at - b.at
	})
	of := parts{characters: characters + utf8.RuneCountInString(text[from:])}
	for i, p := range list {
		if i > 0 && p.score <= 0 {
			break
		}
		of.at, of.texts = append(of.at, p.at), append(of.texts, p.text)
	}
	return of
}

// best are at most n passages, in the order of the text.
func (p parts) best(n int) parts {
	n = min(n, len(p.at))
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return p.at[a] - p.at[b] })
	of := parts{characters: p.characters}
	for _, i := range order {
		of.at, of.texts = append(of.at, p.at[i]), append(of.texts, p.texts[i])
	}
	return of
}
