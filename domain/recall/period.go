package recall

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/annals-project/annals/domain/comprehend"
)

// askingWords are the words of asking of each language that are no stop words, by what they do: name no thing in
// particular, state that something happens, or request. A question of these, of stop words and of a time asks what
// happened. The lists are closed and short, since any other word makes it an ordinary question.
var askingWords = []struct {
	language language
	words    string
}{
	{inEnglish, `anything anyone anybody everything everyone everybody something nothing thing things stuff else new all us`},
	{inEnglish, `happen happens happened happening occur occurs occurred went go going did done since within will`},
	{inEnglish, `tell show list give know recap summary summarize summarise please`},
	{inGerman, `alles etwas irgendetwas irgendwas neu neues los seit bitte zeig zeige liste`},
	{inGerman, `passiert passierte geschah geschehen geschieht gab gibt gewesen vorgefallen getan gemacht machten taten`},
	{inFrench, `tout toutes tous quelque chose rien quoi nouveau nouvelle nouveautes neuf cela ca depuis`},
	{inFrench, `passe passa arrive arriva fait fit faisait montre liste donne`},
	{inSpanish, `todo todos cosa cosas nuevo nueva nuevos nuevas novedad novedades muestra lista dime`},
	{inSpanish, `paso pasa pasado pasaba ocurrio ocurrido sucedio sucedido hicimos hice hizo hecho`},
	{inItalian, `tutto tutti cosa cose qualcosa nuovo nuova novita mostra elenca dimmi`},
	{inItalian, `successo succede successe accaduto accadde fatto`},
	{inPortuguese, `tudo todos coisa coisas algo novo nova novos novas novidade novidades desde ha mostra lista`},
	{inPortuguese, `aconteceu acontece acontecido passou ocorreu fizemos fiz fez feito`},
	{inDutch, `allemaal alles iets nieuw nieuws sinds we wij toon lijst geef`},
	{inDutch, `gebeurd gebeurde gebeurt gebeuren gedaan deden deed hebben`},
	{inSwedish, `allt nagot nytt nya visa lista hande hant hander skedde skett gjorde gjort`},
	{inRussian, `все всё что-нибудь что-то новое нового новости покажи расскажи`},
	{inRussian, `случилось случается произошло происходит происходило делали сделали было`},
	{inKorean, `무슨 일 일이 일은 일들 일들이 뭐 뭐가 뭘 무엇 무엇이 무엇을 어떤 모든 모두 전부 다 새로운 것 것은 것이 게 우리 우리가 우리는 나 내가 나는`},
	{inKorean, `있었어 있었어요 있었나 있었나요 있었니 있었는지 있었지 있어 있나요 했어 했어요 했나요 했니 했지 생긴 일어난 일어났어 일어났나요`},
	{inKorean, `알려줘 보여줘 에 부터`},
}

// asking are the askingWords of each language.
var asking = func() (words [languageCount]map[string]struct{}) {
	for _, list := range askingWords {
		if words[list.language] == nil {
			words[list.language] = map[string]struct{}{}
		}
		maps.Copy(words[list.language], wordSet(list.words))
	}
	return words
}()

// askingUnits are the phrases of asking of the scripts without spaces, the longest of those with one beginning first.
var askingUnits = func() []string {
	all := strings.Fields(`何がありましたか 何がありました 何があったのか 何があったの 何があったか 何があった 何かありましたか 何かありました 何かあった 何か 何が
		何を 何 なにが なにを なに ありましたか ありました あったこと あったの あった 起きましたか 起きました 起きたこと 起きた 起こったこと 起こった
		起こりましたか しましたか しました したこと した やりましたか やった 出来事 できごと こと 新しい 新着 すべて 全部 全て 教えて ください 見せて
		私たち 私 わたし は が を に の で も と か よ ね です でした 発生 以降 以来 から まで 中 間
		发生了什么事 发生了什么 發生了什麼事 發生了什麼 发生 發生 什么事情 什么事 什么 什麼事情 什麼事 什麼 哪些 事情 事 做了 做过 做過 做 有 了 过 過 的 在
		是 我们 我們 我 都 所有 全部 新的 新 吗 嗎 呢 啊 过去 過去 以来 以來 以后 以後 之后 之後 起 自从 自從 自 从 從 到 里 裡 请 請 告诉 告訴`)
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return all
}()

// TimeAsked is what a query about a time asks for.
type TimeAsked struct {
	// Spans are those that something occurred in, within the window of the query.
	Spans []comprehend.Period
	// Named are the periods that the query names, whatever its window.
	Named []comprehend.Period
}

// TimeAsked returns the times that a query asks the events of. It is nil if the query has another word than words of
// time, of asking and stop words, and if it neither names a period nor has a window. From and to are that window, both
// inclusive, and nil if open. At most periodsAsked periods count.
func (a *Analyzer) TimeAsked(text string, asked time.Time, from, to *time.Time) *TimeAsked {
	found := comprehend.NamedPeriods(text, asked)
	if len(found) == 0 && from == nil && to == nil || !a.onlyAsks(text, found) {
		return nil
	}
	window := comprehend.Period{End: time.Date(10000, time.January, 1, 0, 0, 0, 0, time.UTC)}
	if from != nil {
		window.Start = *from
	}
	if to != nil {
		window.End = to.Add(time.Microsecond)
	}
	if len(found) == 0 {
		return &TimeAsked{Spans: []comprehend.Period{window}}
	}
	of := new(TimeAsked)
	for _, n := range found[:min(len(found), periodsAsked)] {
		of.Named = append(of.Named, n.Period)
		if p := n.Within(window); p.Start.Before(p.End) {
			of.Spans = append(of.Spans, p)
		}
	}
	return of
}

// relativeWords returns the words of a query that only say how far a time is from now, as "yesterday" and "last week"
// do. A text that has nothing else of the query is about another day as well as about that one. A date is a word as
// others are.
func (a *Analyzer) relativeWords(text string, asked time.Time, terms []Term) (relative Words) {
	rest := make([]byte, 0, len(text))
	end := 0
	for _, n := range comprehend.NamedPeriods(text, asked) {
		if span := text[max(n.From, end):max(n.To, end)]; isDate(span) {
			continue
		}
		rest = append(append(rest, text[end:max(n.From, end)]...), ' ')
		end = max(n.To, end)
	}
	if end == 0 {
		return 0
	}
	p := a.read(string(append(rest, text[end:]...)))
	defer p.release()
	for i, t := range terms[:ownOf(terms)] {
		if !slices.ContainsFunc(p.items, func(item item) bool { return item.word == t.Text }) {
			relative |= 1 << i
		}
	}
	return relative
}

// isDate reports whether an expression of time has a number or the name of a month.
func isDate(expression string) bool {
	if strings.ContainsFunc(expression, unicode.IsDigit) {
		return true
	}
	low := strings.ToLower(expression)
	for month := time.January; month <= time.December; month++ {
		if strings.Contains(low, strings.ToLower(month.String())) {
			return true
		}
	}
	return false
}

// HasOther reports whether counts have a word of the question, or another spelling of one, that is not relative.
func (q *Question) HasOther(counts []Count) bool {
	for i, c := range counts {
		if c != (Count{}) && !q.Relative.Has(q.Terms[i].For) {
			return true
		}
	}
	return false
}

// Occurred reports whether something occurred in one of the spans.
func (t *TimeAsked) Occurred(at time.Time) bool {
	return slices.ContainsFunc(t.Spans, func(p comprehend.Period) bool { return !at.Before(p.Start) && at.Before(p.End) })
}

// Names reports whether a period in days of UTC, as a text names it, is part of one that the query names.
func (t *TimeAsked) Names(p comprehend.Period) bool {
	return slices.ContainsFunc(t.Named, func(named comprehend.Period) bool {
		return !p.Start.Before(dayOf(named.Start)) && !p.End.After(dayOf(named.End.Add(-1)).AddDate(0, 0, 1))
	})
}

// dayOf returns the first moment in UTC of the day that a time has in its location.
func dayOf(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// periodsAsked is the most periods that one query asks for.
const periodsAsked = 16

// onlyAsks reports whether a query has no other words than those that name its periods, stop words and words of asking,
// all of one language. A query of nothing but an asterisk asks for everything.
func (a *Analyzer) onlyAsks(text string, named []comprehend.Named) bool {
	if len(text) > askingBytes {
		return false
	}
	rest := make([]byte, 0, len(text))
	end := 0
	for _, n := range named {
		rest = append(append(rest, text[end:max(n.From, end)]...), ' ')
		end = max(n.To, end)
	}
	words, units := withoutUnits(string(append(rest, text[end:]...)))
	if !onlyUnits(units) {
		return false
	}
	p := a.read(words)
	defer p.release()
	if len(p.items) == 0 {
		return len(named) > 0 || len(units) > 0 || strings.TrimSpace(text) == "*"
	}
	for l := range languageCount {
		if p.onlyAskIn(l) {
			return true
		}
	}
	return false
}

// askingBytes is the most bytes of a query that asks for a time alone.
const askingBytes = 800

// onlyAskIn reports whether all words are stop words or words of asking in a language. A word with an article or the
// like before an apostrophe is what follows that.
func (p *reading) onlyAskIn(l language) bool {
	asks := func(item *item) bool {
		_, asks := asking[l][item.word]
		if l == inGerman && asks { // nouns have capitals, too
			return true
		}
		return (asks || l != inKorean && item.stops.has(l)) && !p.name(item)
	}
	for i := range p.items {
		item := &p.items[i]
		elided := i+1 < len(p.items) && p.items[i+1].kind == aPart && strings.HasSuffix(item.word, p.items[i+1].word)
		if item.kind == aSymbol || item.kind == aWord && !asks(item) && !(elided && asks(&p.items[i+1])) {
			return false
		}
	}
	return true
}

// withoutUnits returns a text without its runs of scripts without spaces, and these.
func withoutUnits(text string) (words string, units []string) {
	isUnit := func(r rune) bool { return r >= utf8.RuneSelf && characterOf(r).class == unit }
	units = strings.FieldsFunc(text, func(r rune) bool { return !isUnit(r) })
	return strings.Map(func(r rune) rune {
		if isUnit(r) || unicode.Is(unicode.Po, r) && r >= 0x3000 {
			return ' '
		}
		return r
	}, text), units
}

// onlyUnits reports whether runs of scripts without spaces are phrases of asking alone, read from left to right.
func onlyUnits(runs []string) bool {
	for _, run := range runs {
		for run != "" {
			at := slices.IndexFunc(askingUnits, func(phrase string) bool { return strings.HasPrefix(run, phrase) })
			if at < 0 {
				return false
			}
			run = run[len(askingUnits[at]):]
		}
	}
	return true
}
