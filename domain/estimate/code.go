package estimate

import (
	"regexp"
	"strconv"
	"strings"
)

const (
	// wholeFile is the size up to which a file of code is one data point.
	wholeFile = 1500
	// maxDeclaration is how much of a line is looked at for a declaration.
	maxDeclaration = 300
)

// declarations are the first lines of functions and types, by extension. They match lines that are not
// indented. A parser for each language would be exact; these lines need none, and take linear time.
var declarations = func() map[string]*regexp.Regexp {
	families := map[string]string{
		".go":             `^(?:func(?:\s+\([^)]*\))?\s+|type\s+)([\p{L}_][\p{L}\p{N}_]*)`,
		".py":             `^(?:async\s+def|def|class)\s+([\p{L}_][\p{L}\p{N}_]*)`,
		".rb .lua .ex":    `^(?:def|class|module|function|local function|defmodule)\s+([\p{L}_][\p{L}\p{N}_.:?!]*)`,
		".rs":             `^(?:pub(?:\([^)]*\))?\s+)?(?:async\s+|const\s+|unsafe\s+|extern\s+"C"\s+)*(?:fn|struct|enum|trait|mod|union|macro_rules!)\s+([\p{L}_][\p{L}\p{N}_]*)|^(impl\b[^{]*)`,
		".js .ts .vue":    `^(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?(?:async\s+)?(?:function\*?|class|interface|enum|type|namespace)\s+([\p{L}_$][\p{L}\p{N}_$]*)|^(?:export\s+)?(?:const|let|var)\s+([\p{L}_$][\p{L}\p{N}_$]*)\s*(?::[^=]+)?=\s*(?:async\s*)?(?:function\b|\([^)]*\)\s*(?::[^=]+)?=>|[\p{L}_$]+\s*=>)`,
		".java .cs .kt":   `^(?:[a-z@][\w@]*\s+)*?(?:class|interface|enum|record|struct|object|fun|func|extension|protocol|trait|def|actor)\s+(?:<[^>]*>\s*)?([\p{L}_][\p{L}\p{N}_.]*)`,
		".c .cpp .m":      `^(?:class|struct|enum|union|namespace|typedef struct)\s+([\p{L}_][\p{L}\p{N}_]*)[^;]*$`,
		".php":            `^(?:(?:abstract|final)\s+)?(?:function|class|interface|trait|enum)\s+&?([\p{L}_][\p{L}\p{N}_]*)`,
		".sh":             `^(?:function\s+)?([\p{L}_][\p{L}\p{N}_-]*)\s*\(\)|^function\s+([\p{L}_][\p{L}\p{N}_-]*)`,
		".sql":            `(?i)^create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+|unique\s+|materialized\s+)?(?:table|view|function|procedure|index|trigger|type)\s+(?:if\s+not\s+exists\s+)?([\p{L}_"][\p{L}\p{N}_."]*)`,
		".proto .graphql": `^(?:message|service|enum|type|input|interface|extend type|union|scalar)\s+([\p{L}_][\p{L}\p{N}_]*)`,
		".tf":             `^(?:resource|data|module|variable|output|provider|locals)\b\s*("[^{]*")?`,
	}
	others := map[string]string{
		".js": ".jsx .mjs .cjs .tsx .svelte", ".java": ".kts .scala .swift .dart", ".c": ".h .cc .cxx .hpp .hh",
		".sh": ".bash .zsh", ".rb": ".exs",
	}
	all := map[string]*regexp.Regexp{}
	for names, pattern := range families {
		compiled := regexp.MustCompile(pattern)
		for _, ext := range strings.Fields(names) {
			for _, e := range strings.Fields(ext + " " + others[ext]) {
				all[e] = compiled
			}
		}
	}
	return all
}()

// cutCode cuts code at its functions and types that are not indented. A short file, and one of a language
// without these, is one data point or its parts.
func cutCode(c *cut) error {
	pattern := declarations[extension(c.path)]
	if pattern == nil || len(c.text) <= wholeFile {
		return c.codeParts("", c.text, newNames())
	}
	taken := newNames()
	name, start, end := "", 0, 0
	lead := -1 // where the comments and decorators before the next declaration begin
	for at := 0; at < len(c.text); {
		line, _ := c.line(c.text[at:])
		if c.ended != nil {
			return c.ended
		}
		next := min(at+len(line)+1, len(c.text))
		if declared := declaredIn(pattern, line); declared != "" {
			from := at
			if lead >= 0 {
				from = lead
			}
			if err := c.codeParts(name, c.text[start:from], taken); err != nil {
				return err
			}
			name, start = declared, from
		}
		switch {
		case isLead(line):
			if lead < 0 {
				lead = at
			}
		default:
			lead = -1
		}
		at, end = next, next
	}
	return c.codeParts(name, c.text[start:end], taken)
}

// declaredIn returns the name that a line declares, "" for none.
func declaredIn(pattern *regexp.Regexp, line string) string {
	if line == "" || line[0] == ' ' || line[0] == '\t' || line[0] == '}' || line[0] == '#' || line[0] == '/' {
		return ""
	}
	line = strings.ToValidUTF8(line[:min(len(line), maxDeclaration)], "")
	m := pattern.FindStringSubmatch(line)
	if m == nil {
		if pattern == declarations[".c"] {
			return functionOfC(line)
		}
		return ""
	}
	for _, name := range m[1:] {
		if name = fitName(strings.Trim(name, ` "`), 200); name != "" {
			return name
		}
	}
	return fitName(strings.TrimRight(line, " {"), 200)
}

// functionOfC returns the name of the function whose definition begins in a line: the word before the first
// parenthesis, if another word comes before it and no statement ends in the line.
func functionOfC(line string) string {
	before, _, ok := strings.Cut(line, "(")
	if !ok || strings.ContainsAny(before, "=;{}!\"#") || strings.HasSuffix(strings.TrimSpace(line), ";") {
		return ""
	}
	words := strings.Fields(before)
	if len(words) == 0 || len(words) == 1 && !strings.Contains(words[0], "::") {
		return ""
	}
	return strings.TrimLeft(words[len(words)-1], "*&")
}

// isLead reports whether a line belongs to the declaration after it: a comment or a decorator.
func isLead(line string) bool {
	for _, mark := range []string{"//", "#", "/*", " *", "*", "@", "--", "[", `"""`} {
		if strings.HasPrefix(line, mark) {
			return true
		}
	}
	return false
}

// codeParts emits a declaration, in parts if it is long. name is "" for the beginning of the file.
func (c *cut) codeParts(name, text string, taken names) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	label, element := c.path, ""
	if name != "" {
		label, element = c.labelled(c.path, " "+name), "#"+taken.unique(name, "")
	}
	metadata := c.metadata("symbol", name)
	n := 0
	return parts(text, func(part string) error {
		n++
		p := Point{ID: c.ids.of(element), Content: part, Label: label, Metadata: metadata}
		if n > 1 {
			number := strconv.Itoa(n)
			p.ID, p.Label = c.ids.of(element+"~part-"+number), c.labelled(label, " ("+number+")")
		}
		return c.emit(p)
	})
}
