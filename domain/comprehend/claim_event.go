package comprehend

import "github.com/annals-project/annals/domain/memory"

// rescheduled verbs leave what they move, or set, on the date that they name.
var rescheduled = set(`move reschedule postpone schedule set push delay shift plan book fix arrange bring advance`)

// leaves states what is so since an event: "Ana moved the launch to 3 June 2025" leaves the launch on 3 June 2025. The claim
// is built from the observation.
func leaves(c *clause, event draft) []draft {
	if !rescheduled[c.lemma] || c.perfect && c.past {
		return nil
	}
	date, ok := c.lastDate()
	if !ok || !date.single() {
		return nil
	}
	at := date.from - 1
	for c.low(at) == "the" || c.low(at) == "on" {
		at--
	}
	if low := c.low(at); low != "to" && low != "for" && low != "until" && low != "till" {
		return nil
	}
	from, to := c.rest, at
	if c.passive {
		from, to = c.subj, c.subjEnd
		if c.rest != at && c.low(c.rest) != "back" && c.low(c.rest) != "forward" {
			return nil
		}
	}
	for c.low(to-1) == "back" || c.low(to-1) == "forward" || c.low(to-1) == "out" || c.low(to-1) == "up" {
		to--
	}
	what, key := c.scheduled(from, to)
	if what == "" {
		return nil
	}
	d := c.draft(memory.Claim, finishLine(what+" is "+date.preposition()+date.describe(), ""))
	d.subject, d.attribute = key, "date"
	d.basis = append(d.basis, event.line)
	return []draft{d}
}

// lastDate is the last date expression of the clause.
func (c *clause) lastDate() (last dated, ok bool) {
	for _, d := range c.s.dates {
		if d.from >= c.rest && d.to <= c.to {
			last, ok = d, true
		}
	}
	return last, ok
}

// single reports whether the date is one day, one month or one year, or a time of one day.
func (d dated) single() bool {
	return d.clock || d.start.AddDate(0, 0, 1).Equal(d.end) || d.start.Day() == 1 && (d.start.AddDate(0, 1, 0).Equal(d.end) || d.start.AddDate(1, 0, 0).Equal(d.end))
}

// preposition is what stands before the date in a sentence.
func (d dated) preposition() string {
	if d.clock || d.start.AddDate(0, 0, 1).Equal(d.end) {
		return "on "
	}
	return "in "
}

// scheduled is the thing that the tokens [from, to) name, as it stands in a line and as a subject key.
func (c *clause) scheduled(from, to int) (what, key string) {
	if to-from < 2 || to-from > 7 {
		return "", ""
	}
	for i := from; i < to; i++ {
		if low := c.low(i); !c.s.tokens[i].word || conjunctions[low] || vagueObjects[low] || low == "to" {
			return "", ""
		}
	}
	switch c.low(from) {
	case "the":
		return c.phrase(from, to), c.foldTokens(from, to)
	case "my", "our":
		who := fold(c.s.who.name)
		if who == "" {
			return c.text(from, to), map[string]string{"my": "i", "our": "we"}[c.low(from)] + "'s " + c.foldTokens(from+1, to)
		}
		return possessive(c.s.who.name) + " " + c.text(from+1, to), who + "'s " + c.foldTokens(from+1, to)
	}
	if isName(c.s.tokens[from]) {
		return c.text(from, to), c.foldTokens(from, to)
	}
	return "", ""
}
