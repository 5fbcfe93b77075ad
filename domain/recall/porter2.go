package recall

import "strings"

// stem is the English stem of a lower-case word by the Porter2 algorithm (snowballstem.org). Words with anything but
// the letters a to z, and words of one or two letters, are their own stems.
func stem(word string) string {
	if len(word) <= 2 {
		return word
	}
	for i := range len(word) {
		if word[i] < 'a' || word[i] > 'z' {
			return word
		}
	}
	if special, ok := porterSpecial[word]; ok {
		return special
	}
	p := porter{w: []byte(word)}
	p.markY()
	p.regions()
	p.step1a()
	if _, done := porterInvariant[string(p.w)]; done {
		return string(p.w)
	}
	p.step1b()
	p.step1c()
	p.step2()
	p.step3()
	p.step4()
	p.step5()
	return strings.ToLower(string(p.w))
}

var porterSpecial = map[string]string{
	"skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl",
	"ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl", "sky": "sky", "news": "news", "howe": "howe",
	"atlas": "atlas", "cosmos": "cosmos", "bias": "bias", "andes": "andes",
}

var porterInvariant = map[string]struct{}{
	"inning": {}, "outing": {}, "canning": {}, "herring": {}, "earring": {}, "proceed": {}, "exceed": {}, "succeed": {},
}

// porter is a word on its way to its stem; Y is a y that is a consonant. r1 and r2 are where the regions begin.
type porter struct {
	w      []byte
	r1, r2 int
}

func isVowel(c byte) bool {
	switch c {
	case 'a', 'e', 'i', 'o', 'u', 'y':
		return true
	}
	return false
}

func (p *porter) markY() {
	for i, c := range p.w {
		if c == 'y' && (i == 0 || isVowel(p.w[i-1])) {
			p.w[i] = 'Y'
		}
	}
}

func (p *porter) regions() {
	p.r1 = p.behind(0)
	for _, prefix := range []string{"gener", "commun", "arsen"} {
		if strings.HasPrefix(string(p.w), prefix) {
			p.r1 = len(prefix)
		}
	}
	p.r2 = p.behind(p.r1)
}

// behind is the offset behind the first consonant that follows a vowel, from an offset on.
func (p *porter) behind(from int) int {
	for i := from + 1; i < len(p.w); i++ {
		if isVowel(p.w[i-1]) && !isVowel(p.w[i]) {
			return i + 1
		}
	}
	return len(p.w)
}

func (p *porter) has(suffix string) bool {
	return len(p.w) >= len(suffix) && string(p.w[len(p.w)-len(suffix):]) == suffix
}

// in1 and in2 say whether a suffix lies in the region.
func (p *porter) in1(suffix string) bool { return len(p.w)-len(suffix) >= p.r1 }
func (p *porter) in2(suffix string) bool { return len(p.w)-len(suffix) >= p.r2 }

func (p *porter) replace(suffix, by string) {
	p.w = append(p.w[:len(p.w)-len(suffix)], by...)
}

// vowelBefore says whether a vowel stands in the first n letters.
func (p *porter) vowelBefore(n int) bool {
	for _, c := range p.w[:n] {
		if isVowel(c) {
			return true
		}
	}
	return false
}

// short says whether the word ends in a short syllable.
func (p *porter) short() bool {
	n := len(p.w)
	if n == 2 {
		return isVowel(p.w[0]) && !isVowel(p.w[1])
	}
	if n < 3 {
		return false
	}
	last := p.w[n-1]
	return !isVowel(p.w[n-3]) && isVowel(p.w[n-2]) && !isVowel(last) && last != 'w' && last != 'x' && last != 'Y'
}

func (p *porter) step1a() {
	switch {
	case p.has("sses"):
		p.replace("sses", "ss")
	case p.has("ied"), p.has("ies"):
		if len(p.w) > 4 {
			p.w = p.w[:len(p.w)-2]
		} else {
			p.w = p.w[:len(p.w)-1]
		}
	case p.has("us"), p.has("ss"):
	case p.has("s"):
		if n := len(p.w); n > 2 && p.vowelBefore(n-2) {
			p.w = p.w[:n-1]
		}
	}
}

func (p *porter) step1b() {
	for _, suffix := range []string{"eedly", "eed"} {
		if p.has(suffix) {
			if p.in1(suffix) {
				p.replace(suffix, "ee")
			}
			return
		}
	}
	for _, suffix := range []string{"ingly", "edly", "ing", "ed"} {
		if !p.has(suffix) {
			continue
		}
		if !p.vowelBefore(len(p.w) - len(suffix)) {
			return
		}
		p.replace(suffix, "")
		p.afterStep1b()
		return
	}
}

func (p *porter) afterStep1b() {
	switch n := len(p.w); {
	case p.has("at"), p.has("bl"), p.has("iz"):
		p.w = append(p.w, 'e')
	case n >= 2 && p.w[n-1] == p.w[n-2] && strings.IndexByte("bdfgmnprt", p.w[n-1]) >= 0:
		p.w = p.w[:n-1]
	case p.r1 >= n && p.short():
		p.w = append(p.w, 'e')
	}
}

func (p *porter) step1c() {
	n := len(p.w)
	if n > 2 && (p.w[n-1] == 'y' || p.w[n-1] == 'Y') && !isVowel(p.w[n-2]) {
		p.w[n-1] = 'i'
	}
}

// suffixes are pairs of a suffix and what replaces it, longest first.
type suffixes [][2]string

var step2Suffixes = suffixes{
	{"ational", "ate"},
	{"fulness", "ful"},
	{"iveness", "ive"},
	{"ization", "ize"},
	{"ousness", "ous"},
	{"biliti", "ble"},
	{"lessli", "less"},
	{"tional", "tion"},
	{"alism", "al"},
	{"aliti", "al"},
	{"ation", "ate"},
	{"entli", "ent"},
	{"fulli", "ful"},
	{"iviti", "ive"},
	{"ousli", "ous"},
	{"abli", "able"},
	{"alli", "al"},
	{"anci", "ance"},
	{"ator", "ate"},
	{"enci", "ence"},
	{"izer", "ize"},
	{"bli", "ble"},
	{"ogi", "og"},
	{"li", ""},
}

func (p *porter) step2() {
	for _, s := range step2Suffixes {
		if !p.has(s[0]) {
			continue
		}
		if !p.in1(s[0]) {
			return
		}
		before := len(p.w) - len(s[0])
		switch s[0] {
		case "ogi":
			if before == 0 || p.w[before-1] != 'l' {
				return
			}
		case "li":
			if before == 0 || strings.IndexByte("cdeghkmnrt", p.w[before-1]) < 0 {
				return
			}
		}
		p.replace(s[0], s[1])
		return
	}
}

var step3Suffixes = suffixes{
	{"ational", "ate"},
	{"tional", "tion"},
	{"alize", "al"},
	{"ative", ""},
	{"icate", "ic"},
	{"iciti", "ic"},
	{"ical", "ic"},
	{"ness", ""},
	{"ful", ""},
}

func (p *porter) step3() {
	for _, s := range step3Suffixes {
		if !p.has(s[0]) {
			continue
		}
		if p.in1(s[0]) && (s[0] != "ative" || p.in2(s[0])) {
			p.replace(s[0], s[1])
		}
		return
	}
}

var step4Suffixes = []string{
	"ement", "able", "ance", "ence", "ible", "ment", "ant", "ate", "ent", "ion", "ism", "iti", "ive", "ize", "ous", "al", "er", "ic",
}

func (p *porter) step4() {
	for _, suffix := range step4Suffixes {
		if !p.has(suffix) {
			continue
		}
		before := len(p.w) - len(suffix)
		if p.in2(suffix) && (suffix != "ion" || before > 0 && (p.w[before-1] == 's' || p.w[before-1] == 't')) {
			p.replace(suffix, "")
		}
		return
	}
}

func (p *porter) step5() {
	n := len(p.w)
	switch {
	case p.has("e"):
		if p.in2("e") {
			p.w = p.w[:n-1]
		} else if p.in1("e") {
			p.w = p.w[:n-1]
			if p.short() {
				p.w = append(p.w, 'e')
			}
		}
	case p.has("ll"):
		if p.in2("l") {
			p.w = p.w[:n-1]
		}
	}
}
