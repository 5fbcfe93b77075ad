package recall

// restatedWords is the most words of a text that restates another one.
const restatedWords = 15

// Restates reports whether two short texts of one author are probably about the same thing, so that the later one is
// current: "I play squash on Sundays now" restates "I play tennis on Sundays". At least half of the words of the
// shorter text are in the other one, which is at most twice as long and three words more.
func Restates(text, other string) bool {
	counts := make(map[string]int)
	length := 0
	words(text, func(word []byte) {
		counts[string(word)]++
		length++
	})
	same, otherLength := 0, 0
	words(other, func(word []byte) {
		otherLength++
		if counts[string(word)] > 0 {
			counts[string(word)]--
			same++
		}
	})
	shorter, longer := min(length, otherLength), max(length, otherLength)
	return same > 0 && 2*same >= shorter && longer <= 2*shorter+3 && longer <= restatedWords
}
