package comprehend

import "time"

// Period is a span of time: from Start, before End.
type Period struct{ Start, End time.Time }

// Periods reads the date expressions of a question, in order, as asked at an instant. What it leaves open, such as the year
// of a month, is the latest that had begun by then, unless the question speaks of the future. At most MaxSentence bytes are read.
func Periods(question string, asked time.Time) []Period {
	s := sentence{tokens: tokenize(mask(question[:min(len(question), MaxSentence)]), nil)}
	s.tense = tenseOf(s.tokens)
	s.tense.past = !s.tense.future
	var periods []Period
	for _, d := range findDates(&s, asked.UTC()) {
		periods = append(periods, Period{d.start, d.end})
	}
	return periods
}
