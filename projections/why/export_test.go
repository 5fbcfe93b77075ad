package why

import (
	"strings"
)

// NextTable is the table of next steps as the OpenAPI document prints it.
func NextTable() string {
	var b strings.Builder
	b.WriteString("| phase | when | next |\n|---|---|---|\n")
	for _, row := range nextSteps {
		b.WriteString("| " + row.phase + " | " + strings.Join(row.when, ", ") + " | " + row.next + " |\n")
	}
	return b.String()
}

// NextSentences are the sentences of the table.
func NextSentences() (sentences []string) {
	for _, row := range nextSteps {
		sentences = append(sentences, row.next)
	}
	return sentences
}

// HasNext reports whether a row is for an error code.
func HasNext(code string) bool { return findNext(callRefused, code) != "" }
