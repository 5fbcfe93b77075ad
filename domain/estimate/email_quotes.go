package estimate

import (
	"regexp"
	"slices"
	"strings"
)

// attribution is a line such as "On 12 May 2025, Ana wrote:", in some languages.
var attribution = regexp.MustCompile(`(?i)^(?:on\b.*\bwrote|am\b.*\bschrieb\b.*|le\b.*\ba écrit|el\b.*\bescribió|il\b.*\bha scritto|` +
	`em\b.*\bescreveu|op\b.*\bschreef\b.*|den\b.*\bskrev\b.*|.*<[^<>\s]+@[^<>\s]+>\s*(?:wrote|schrieb|a écrit|escribió|ha scritto)):\s*$`)

// original is a line before a message that is repeated in full.
var original = regexp.MustCompile(`(?i)^[ \t]*(?:-{2,}[ \t]*(?:original message|ursprüngliche nachricht|message d'origine|` +
	`mensaje original|messaggio originale|original-nachricht)[ \t]*-{2,}|_{20,})[ \t]*$`)

// maxAttribution is the longest line that is looked at for these forms.
const maxAttribution = 300

// cutQuotes removes what a message repeats of others: lines with ">", their attribution, and all after
// the mark of an original message. Answers between quotations stay.
func (c *cut) cutQuotes(text string) string {
	var kept strings.Builder
	kept.Grow(len(text))
	for text != "" {
		line, rest := c.line(text)
		if strings.HasPrefix(line, ">") || strings.HasPrefix(strings.TrimLeft(line, " "), "> ") {
			text = rest
			continue
		}
		if after, ok := attributed(text); ok {
			if !quotes(after) {
				break // what follows is quoted without marks
			}
			text = after
			continue
		}
		if repeats(text) {
			break
		}
		kept.WriteString(line)
		kept.WriteByte('\n')
		text = rest
	}
	return strings.Trim(kept.String(), "\n")
}

// maxSkipped is how much of a line is skipped to reach the next one.
const maxSkipped = 16 << 10

// beginning splits a text at its first line end. Of a long line only the beginning is returned: no form that
// is looked for is longer, and each line is looked at from several before it. The rest after a line that has
// no end in sight is "".
func beginning(text string) (line, rest string) {
	end := strings.IndexByte(text[:min(len(text), maxSkipped)], '\n')
	if end < 0 {
		return text[:min(len(text), maxAttribution+1)], ""
	}
	return text[:min(end, maxAttribution+1)], text[end+1:]
}

// attributed returns what comes after the attribution of a quotation. Programs fold long ones.
func attributed(text string) (rest string, ok bool) {
	joined := ""
	for n := 0; n < 3 && text != ""; n++ {
		var line string
		line, text = beginning(text)
		if len(line) > maxAttribution {
			return "", false
		}
		if line = strings.TrimSpace(line); line == "" || len(joined)+len(line) > maxAttribution {
			return "", false
		}
		if joined != "" {
			joined += " "
		}
		if joined += line; strings.HasSuffix(line, ":") {
			return text, attribution.MatchString(joined)
		}
	}
	return "", false
}

// quotes reports whether the next line with text is quoted.
func quotes(text string) bool {
	for n := 0; n < 4 && text != ""; n++ {
		var line string
		line, text = beginning(text)
		if line = strings.TrimSpace(line); line != "" {
			return strings.HasPrefix(line, ">")
		}
	}
	return false
}

// repeatedFields are the fields of a message that is repeated without marks, as Outlook does.
var repeatedFields = [][]string{
	{"from:", "sent:", "to:"},
	{"from:", "date:", "to:"},
	{"from:", "date:", "subject:"},
	{"von:", "gesendet:", "an:"},
	{"de :", "envoyé :", "à :"},
	{"de:", "enviado:", "para:"},
	{"da:", "inviato:", "a:"},
}

// repeats reports whether an original message begins.
func repeats(text string) bool {
	for range 9 {
		line, rest := beginning(text)
		if len(line) > maxAttribution {
			return false
		}
		if !original.MatchString(line) {
			break
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "_") {
			return true
		}
		text = rest // a rule of underscores alone may be part of the text
	}
	return hasFieldsOfOne(text)
}

// hasFieldsOfOne reports whether a text begins with the fields of a message that is repeated.
func hasFieldsOfOne(text string) bool {
	line, rest := beginning(text)
	low := strings.ToLower(strings.TrimLeft(line, " *"))
	for _, fields := range repeatedFields {
		if strings.HasPrefix(low, fields[0]) && hasFields(rest, fields[1:]) {
			return true
		}
	}
	return false
}

// hasFields reports whether the next five lines begin with fields, each with one.
func hasFields(text string, fields []string) bool {
	var begins [5]string
	for n := 0; n < len(begins) && text != ""; n++ {
		var line string
		line, text = beginning(text)
		begins[n] = strings.ToLower(strings.TrimLeft(line[:min(len(line), 40)], " *"))
	}
	for _, f := range fields {
		if !slices.ContainsFunc(begins[:], func(line string) bool { return strings.HasPrefix(line, f) }) {
			return false
		}
	}
	return true
}
