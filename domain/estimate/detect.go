package estimate

import (
	"encoding/json"
	"path"
	"strings"
)

// DetectedBy is how the kind of a file was decided.
type DetectedBy string

// The ways in which a kind is decided.
const (
	// Given is a kind that the request names.
	Given DetectedBy = "given"
	// ByExtension and ByContent name what showed the kind.
	ByExtension DetectedBy = "extension"
	ByContent   DetectedBy = "content"
	// ByJupyter, ByICalendar, ByVCard and ByOKF name the format of a file.
	ByJupyter   DetectedBy = "jupyter"
	ByICalendar DetectedBy = "icalendar"
	ByVCard     DetectedBy = "vcard"
	ByOKF       DetectedBy = "okf"
	// ByDefault is notes: text that is nothing else.
	ByDefault DetectedBy = "default"
)

// headBytes is how much of a file the detection reads.
const headBytes = 64 << 10

// detect decides what a normalized text is.
func detect(name, text string) Origin {
	ext := extension(name)
	head := text[:min(len(text), headBytes)]
	if origin, ok := byFormat(ext, head); ok {
		return origin
	}
	if kind, ok := byContent(ext, head); ok {
		return Origin{Kind: kind, By: ByContent}
	}
	if kind, ok := extensions[ext]; ok {
		return Origin{Kind: kind, By: ByExtension}
	}
	return Origin{Kind: Notes, By: ByDefault}
}

// byFormat recognizes the formats that are read in a way of their own.
func byFormat(ext, head string) (Origin, bool) {
	switch ext {
	case ".ipynb":
		return Origin{Kind: Documentation, By: ByJupyter}, true
	case ".md", ".markdown", ".mdx":
		values, _ := frontMatter(head)
		return Origin{Kind: Documentation, By: ByOKF}, values.isOKF()
	}
	if _, known := extensions[ext]; known {
		return Origin{}, false
	}
	switch {
	case isCalendar(head):
		return Origin{Kind: Records, By: ByICalendar}, true
	case isVCard(head):
		return Origin{Kind: Records, By: ByVCard}, true
	}
	return Origin{}, false
}

// extension returns the extension of a path in lower case, with its dot.
func extension(name string) string {
	return strings.ToLower(path.Ext(strings.ReplaceAll(name, `\`, "/")))
}

// byContent recognizes what an extension does not show.
func byContent(ext, head string) (Kind, bool) {
	switch ext {
	case ".json", ".jsonl", ".ndjson":
		return Chat, isChatExport(head)
	case ".csv":
		return Chat, isChatTable(head)
	case ".txt", ".log", ".text", "":
		return textKind(head)
	case ".html", ".htm":
		return "", false
	}
	if _, known := extensions[ext]; known {
		return "", false
	}
	return textKind(head)
}

// textKind recognizes plain text by its first lines.
func textKind(head string) (Kind, bool) {
	switch {
	case isMbox(head) || isMessage(head):
		return Email, true
	case isCues(head):
		return Transcript, true
	case isChatText(head):
		return Chat, true
	case isSpeakers(head):
		return Transcript, true
	case isHTML(head):
		return Documentation, true
	case isJSONLines(head):
		return Records, true
	}
	return "", false
}

func isHTML(head string) bool {
	start := strings.ToLower(strings.TrimSpace(head[:min(len(head), 256)]))
	return strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
}

// isJSONLines reports whether the first line is an object of JSON.
func isJSONLines(head string) bool {
	line, _ := firstLine(strings.TrimSpace(head))
	return strings.HasPrefix(line, "{") && json.Valid([]byte(line))
}

// extensions are the kinds of files that are known by their name.
var extensions = map[string]Kind{
	".eml": Email, ".emlx": Email, ".mbox": Email, ".mbx": Email,
	".vtt": Transcript, ".srt": Transcript,
	".csv": Table, ".tsv": Table, ".tab": Table,
	".json": Records, ".jsonl": Records, ".ndjson": Records,
	".md": Documentation, ".markdown": Documentation, ".mdx": Documentation, ".adoc": Documentation,
	".asciidoc": Documentation, ".asc": Documentation, ".html": Documentation, ".htm": Documentation, ".xhtml": Documentation,
	".rst": Documentation,
	".go":  Code, ".py": Code, ".js": Code, ".jsx": Code, ".mjs": Code, ".cjs": Code, ".ts": Code, ".tsx": Code,
	".java": Code, ".kt": Code, ".kts": Code, ".scala": Code, ".swift": Code, ".cs": Code, ".c": Code, ".h": Code,
	".cc": Code, ".cpp": Code, ".cxx": Code, ".hpp": Code, ".hh": Code, ".m": Code, ".rs": Code, ".rb": Code, ".php": Code,
	".sh": Code, ".bash": Code, ".zsh": Code, ".sql": Code, ".lua": Code, ".pl": Code, ".r": Code, ".dart": Code,
	".ex": Code, ".exs": Code, ".erl": Code, ".hs": Code, ".clj": Code, ".vue": Code, ".svelte": Code, ".css": Code,
	".scss": Code, ".tf": Code, ".proto": Code, ".graphql": Code, ".yaml": Code, ".yml": Code, ".toml": Code,
}

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
