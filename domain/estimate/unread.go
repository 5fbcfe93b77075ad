package estimate

import "strings"

// unreadExports are exports in JSON that no kind reads, by names of fields that all of one have near its beginning. As
// records they would be fields of a program, without speakers and times, and charged.
var unreadExports = []struct {
	program string
	fields  []string
}{
	{"ChatGPT", []string{`"mapping"`, `"parent"`, `"children"`, `"author"`}},
	{"Claude", []string{`"chat_messages"`, `"sender"`}},
	{"Messenger or Instagram", []string{`"participants"`, `"sender_name"`, `"timestamp_ms"`}},
	{"Google Chat", []string{`"messages"`, `"creator"`, `"created_date"`}},
}

// unreadExport returns the program of an export that is not read, "" for any other file.
func unreadExport(of Origin, text string) string {
	if of.Kind != Records || of.By != ByExtension && of.By != ByContent {
		return ""
	}
	head := text[:min(len(text), headBytes)]
	for _, e := range unreadExports {
		all := true
		for _, field := range e.fields {
			all = all && strings.Contains(head, field)
		}
		if all {
			return e.program
		}
	}
	return ""
}
