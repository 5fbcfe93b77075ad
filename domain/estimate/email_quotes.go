package estimate

import (
	"regexp"
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
func cutQuotes(text string) string {
	lines := strings.Split(text, "\n")
	kept := make([]string, 0, len(lines))
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.HasPrefix(line, ">") || strings.HasPrefix(strings.TrimLeft(line, " "), "> ") {
			continue
		}
		if used := attributed(lines[i:]); used > 0 {
			if !quotes(lines[i+used:]) {
				break // what follows is quoted without marks
			}
			i += used - 1
			continue
		}
		if repeats(lines[i:]) {
			break
		}
		kept = append(kept, line)
	}
	return strings.Trim(strings.Join(kept, "\n"), "\n")
}

// attributed returns how many lines the attribution of a quotation takes, 0 for none. Programs fold long
// ones.
func attributed(lines []string) int {
	joined := ""
	for n := 0; n < 3 && n < len(lines); n++ {
		line := strings.TrimSpace(lines[n])
		if line == "" || len(joined)+len(line) > maxAttribution {
			return 0
		}
		if joined != "" {
			joined += " "
		}
		if joined += line; strings.HasSuffix(line, ":") {
			if attribution.MatchString(joined) {
				return n + 1
			}
			return 0
		}
	}
	return 0
}

// quotes reports whether the next line with text is quoted.
func quotes(lines []string) bool {
	for n := 0; n < len(lines) && n < 4; n++ {
		if line := strings.TrimSpace(lines[n]); line != "" {
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
func repeats(lines []string) bool {
	line := lines[0]
	if len(line) > maxAttribution {
		return false
	}
	if original.MatchString(line) {
		// A rule of underscores alone may be part of the text.
		return !strings.HasPrefix(strings.TrimSpace(line), "_") || len(lines) > 1 && repeats(lines[1:2+min(8, len(lines)-2)])
	}
	low := strings.ToLower(strings.TrimLeft(line, " *"))
	for _, fields := range repeatedFields {
		if strings.HasPrefix(low, fields[0]) && hasFields(lines[1:], fields[1:]) {
			return true
		}
	}
	return false
}

// hasFields reports whether the next lines begin with fields, each in one of five lines.
func hasFields(lines, fields []string) bool {
	for _, f := range fields {
		found := false
		for n := 0; n < len(lines) && n < 5 && !found; n++ {
			line := lines[n]
			found = strings.HasPrefix(strings.ToLower(strings.TrimLeft(line[:min(len(line), 40)], " *")), f)
		}
		if !found {
			return false
		}
	}
	return true
}
