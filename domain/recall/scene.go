package recall

import (
	"cmp"
	"slices"
	"time"

	"github.com/annals-project/annals/domain/rawjson"
)

// Turn is a data point as it is ranked, by its best passage: a candidate or a neighbour of one. The
// viewer may read all of them.
type Turn struct {
	// Counts are the occurrences of each term of the question; nil if there are none.
	Counts []Count
	// Length is the number of terms of its text, Size the bytes of the content that would be shown.
	Length int
	Size   int64
	Traits Traits
	// Key is the score of its best memory, on the scale of word scores; 0 for none.
	Key float64
	// Similarity is how much nearer its embedding is to the question's than usual, in standard deviations, negative for
	// less; 0 if unknown. Window is the same of the mean of it and its neighbours in the conversation.
	Similarity, Window float64
	Author             string
	OccurredAt         time.Time
	// Conversation is the key of the conversation that it names, 0 for none.
	Conversation int64
	// Before and After are the indexes of its neighbours in the conversation, or None.
	Before, After int
}

// None is no index.
const None = -1

// threadGap is the longest pause within a conversation.
const threadGap = time.Hour

// SameThread reports whether the later of two successive data points may belong to the conversation
// of the earlier.
func SameThread(earlier, later time.Time) bool { return later.Sub(earlier) <= threadGap }

// Words is a set of words of a question, by their index. A question has at most 64.
type Words uint64

// AllWords is the set of the first n words.
func AllWords(n int) Words { return 1<<n - 1 }

// Has reports whether a word is in the set.
func (w Words) Has(i int) bool { return w&(1<<i) != 0 }

// Contains reports whether all words of another set are in this one.
func (w Words) Contains(other Words) bool { return other&^w == 0 }

// Held returns the words of a question of which a text has the word itself or a stem, by the counts of the question's
// terms. A label does not count: it names the author, too.
func (q *Question) Held(counts []Count) (held Words) {
	for i, c := range counts {
		if t := &q.Terms[i]; c.Text > 0 && t.Kind <= Stem {
			held |= 1 << t.For
		}
	}
	return held
}

// HeldAnywhere is Held of a text and its label.
func (q *Question) HeldAnywhere(counts []Count) (held Words) {
	for i, c := range counts {
		if t := &q.Terms[i]; c != (Count{}) && t.Kind <= Stem {
			held |= 1 << t.For
		}
	}
	return held
}

// Matched reports whether a text or its label has a word of the question or a stem of it, and whether it has another
// spelling of one.
func (q *Question) Matched(counts []Count) (exactly, spelled bool) {
	for i, c := range counts {
		if c == (Count{}) {
			continue
		}
		switch q.Terms[i].Kind {
		case Whole, Stem:
			exactly = true
		case Spelling:
			spelled = true
		}
	}
	return exactly, spelled
}

// scene is the input of all signals.
type scene struct {
	question Question
	turns    []Turn
	weights  Weights
	// content are the indexes of the question's own words, without those that only name an author; isContent are the
	// same as a set.
	content   []int
	isContent Words
	// usual is the mean weight of these words, the unit of signals without words.
	usual float64
	// named is the one author that the question names, or if it names none, the asker; "" for none or
	// several. names are the words that name authors.
	named string
	names Words
	// other is an author whose turns do not count as written by the author asked for: that of a question that addresses
	// "you" and names no author; "" for none.
	other string
	// own is the number of the question's words, held those that each turn has.
	own  int
	held []Words
	// base is the score of each turn by its own words, threads that of its conversation. plain is the score of its text
	// by all words, names of authors too.
	base, threads, plain []float64
	// threadOf is the number of the conversation of each turn.
	threadOf []int
}

func newScene(a *Analyzer, q Question, weights Weights, turns []Turn) *scene {
	s := &scene{question: q, turns: turns, weights: weights, own: q.Own()}
	s.findNamed(a)
	s.chooseContent()
	s.held, s.threadOf = make([]Words, len(turns)), make([]int, len(turns))
	s.base, s.plain = make([]float64, len(turns)), make([]float64, len(turns))
	gains, forms := make([]float64, s.own), make([]float64, s.own)
	for i := range turns {
		s.held[i] = q.Held(turns[i].Counts)
		s.scoreWords(i, gains, forms)
		for word, gain := range gains {
			s.plain[i] += gain
			if s.isContent.Has(word) {
				s.base[i] += gain
			}
		}
		s.base[i] = max(s.base[i], turns[i].Key)
	}
	s.threads = s.scoreThreads()
	return s
}

// chooseContent sets the words that are looked for in texts, and the unit of signals.
func (s *scene) chooseContent() {
	for i := range s.own {
		if !s.names.Has(i) || s.names.Contains(AllWords(s.own)) { // else the question is only a name
			s.content = append(s.content, i)
			s.isContent |= 1 << i
		}
	}
	met := 0
	for _, i := range s.content {
		if w := s.weights[i].text; w > 0 {
			s.usual += w
			met++
		}
	}
	s.usual /= float64(max(met, 1))
}

// findNamed finds the author that the question names, and the words that name authors.
func (s *scene) findNamed(a *Analyzer) {
	seen := make(map[string]struct{})
	authors := 0
	for i := range s.turns {
		author := s.turns[i].Author
		if _, twice := seen[author]; twice || author == "" {
			continue
		}
		seen[author] = struct{}{}
		place := s.nameOf(a, author)
		if place == None {
			continue
		}
		authors++
		s.named = author
		s.names |= 1 << place
	}
	switch {
	case authors == 0 && s.question.Addressed != "":
		s.other = s.question.Addressed
	case authors == 0:
		s.named = s.question.Asker
	case authors > 1:
		s.named = ""
	}
}

// nameOf returns the index of the question's word that is the first name of an author, or None.
func (s *scene) nameOf(a *Analyzer, author string) int {
	terms := a.Words(cut(author, termBytes))
	if len(terms) == 0 {
		return None
	}
	for i := range s.own {
		if s.question.Terms[i].Text == terms[0] {
			return i
		}
	}
	return None
}

// scoreWords sets what each word of the question adds to the score of a turn: BM25 of the word as it is written, and of
// the best of its stems and other spellings. forms is a buffer.
func (s *scene) scoreWords(turn int, gains, forms []float64) {
	clear(gains)
	clear(forms)
	t := &s.turns[turn]
	for i, c := range t.Counts {
		if c.Text == 0 {
			continue
		}
		term := s.question.Terms[i]
		gain := term.Share * s.weights[i].text * Impact(c.Text, t.Length)
		switch term.Kind {
		case Whole:
			gains[term.For] += gain
			continue
		case Stem: // a text has several stems of one word, as the prefixes of Korean
			forms[term.For] = max(forms[term.For], gain)
			continue
		case Spelling:
		}
		if asked := s.weights[term.For].text; asked > 0 && s.weights[i].text > asked {
			gain *= asked / s.weights[i].text // it weighs at most what the word that was asked for does
		}
		forms[term.For] = max(forms[term.For], gain)
	}
	for word, gain := range forms {
		gains[word] += gain
	}
}

// at returns a score of the turn some steps before (negative) or after another, 0 if there is no such turn.
func (s *scene) at(scores []float64, turn, steps int) float64 {
	near := s.neighbour(turn, steps)
	if near == None {
		return 0
	}
	return scores[near]
}

// scoreThreads scores the known turns of each conversation as one text, and returns that score for
// each turn.
func (s *scene) scoreThreads() []float64 {
	order := make([]int, len(s.turns))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.turns[a].Conversation, s.turns[b].Conversation),
			s.turns[a].OccurredAt.Compare(s.turns[b].OccurredAt), cmp.Compare(a, b))
	})
	scores := make([]float64, len(s.turns))
	counts := make([]int, s.own)
	for from, thread := 0, 0; from < len(order); thread++ {
		to := from + 1
		for to < len(order) && s.turns[order[to-1]].Conversation == s.turns[order[to]].Conversation &&
			SameThread(s.turns[order[to-1]].OccurredAt, s.turns[order[to]].OccurredAt) {
			to++
		}
		clear(counts)
		for _, i := range order[from:to] {
			s.addCounts(counts, i)
		}
		score := 0.0
		for _, word := range s.content {
			if tf := float64(counts[word]); tf > 0 {
				score += s.weights[word].text * tf * (threadK1 + 1) / (tf + threadK1)
			}
		}
		for _, i := range order[from:to] {
			scores[i], s.threadOf[i] = score, thread
		}
		from = to
	}
	return scores
}

// addCounts adds how often the text of a turn has each word, in the form that it has most.
func (s *scene) addCounts(counts []int, turn int) {
	most := make([]int, s.own)
	for i, c := range s.turns[turn].Counts {
		if t := s.question.Terms[i]; t.Kind <= Stem {
			most[t.For] = max(most[t.For], c.Text)
		}
	}
	for i, n := range most {
		counts[i] += n
	}
}

// threadK1 is how soon repetitions of a word in a conversation stop adding to its score.
const threadK1 = 1.2

func (s *scene) neighbour(turn, steps int) int {
	for ; steps < 0 && turn != None; steps++ {
		turn = s.turns[turn].Before
	}
	for ; steps > 0 && turn != None; steps-- {
		turn = s.turns[turn].After
	}
	return turn
}

// hasWord reports whether the text of a turn, not only its label, has a word or a stem of it.
func (s *scene) hasWord(turn, word int) bool {
	for i, c := range s.turns[turn].Counts {
		if t := s.question.Terms[i]; t.For == word && t.Kind <= Stem && c.Text > 0 {
			return true
		}
	}
	return false
}

// conversationNames are the top-level names of metadata that say which conversation a text is of. The first one that is
// there counts.
var conversationNames = []string{"conversation", "thread", "session"}

// ConversationOf returns the key of the conversation that metadata name, 0 for none. It is a hash of a text or a
// number, the same in each process.
func ConversationOf(metadata []byte) uint64 {
	if len(metadata) <= len(`{}`) {
		return 0
	}
	members, ok := rawjson.Members(metadata, conversationNames...)
	if !ok {
		return 0
	}
	for _, name := range conversationNames {
		value, is := members[name]
		if !is {
			continue
		}
		switch rawjson.KindOf(value) {
		case rawjson.String:
			if text, ok := rawjson.Text(value); ok && text != "" {
				return hashOf([]string{text})
			}
		case rawjson.Number:
			return hashOf([]string{string(value)})
		default:
		}
	}
	return 0
}

// MostSpeakers is how many authors may write in the hour around a text that names no conversation, for it to be of one
// with the texts next to it: where more write, each writes texts of their own.
const MostSpeakers = 4
