package estimate

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/annals-project/annals/domain/limit"
)

const (
	// maxFrontLines and maxFrontBytes bound the header of a document; a bigger one is read line by line.
	maxFrontLines = 500
	maxFrontBytes = 32 << 10
	// maxFrontDepth is how deep its values are read.
	maxFrontDepth = 4
)

// front is the header that many generators of sites, and the Open Knowledge Format, put before a text: its plain
// values, those of nested ones by their joined names. The values of a list are joined by line ends.
type front map[string]string

// first returns the first of some values, "" for none.
func (f front) first(names ...string) string {
	for _, name := range names {
		if f[name] != "" {
			return f[name]
		}
	}
	return ""
}

// unreadValue stands for a value that is there and cannot be read as a text.
const unreadValue = "(a value of several parts)"

// audience returns who may read the text: the header's own value, else one that is nested in it. Of different ones none
// can be right, so the answer is then no slug. "" is everybody.
func (f front) audience() string {
	found := ""
	for name, value := range f {
		if !strings.HasSuffix(name, "audience") || value == "" || name != "audience" && f["audience"] != "" {
			continue
		}
		if found != "" && found != value {
			return unreadValue
		}
		found = value
	}
	return found
}

// isOKF reports whether the header is that of the Open Knowledge Format, in which each text has a type.
func (f front) isOKF() bool {
	return f["type"] != "" && f.first("generatedat", "generatedby", "description", "resource") != ""
}

// frontForms are the lines around a header: YAML, TOML, and JSON, whose braces are part of it.
var frontForms = []struct {
	begin    string
	ends     []string
	isBraces bool
}{
	{"---", []string{"---", "..."}, false},
	{"+++", []string{"+++"}, false},
	{"{", []string{"}"}, true},
}

// frontMatter splits off the header of a text.
func frontMatter(text string) (values front, rest string) {
	line, after := firstLine(text)
	line = strings.TrimRight(line, " \t")
	for _, form := range frontForms {
		if line != form.begin {
			continue
		}
		header := after
		for left := maxFrontLines; left > 0 && after != ""; left-- {
			end := len(header) - len(after)
			line, after = firstLine(after)
			if !slices.Contains(form.ends, strings.TrimRight(line, " \t")) {
				continue
			}
			header = header[:end]
			if form.isBraces {
				header = "{\n" + header + "}\n"
			}
			if values = frontValues(header); values == nil {
				return nil, text
			}
			return values, after
		}
	}
	return nil, text
}

// frontValues reads a header, nil for text between two lines. What is no YAML is read line by line: TOML is, and many
// write a colon in a title.
func frontValues(header string) front {
	values := front{}
	var root yaml.Node
	if len(header) <= maxFrontBytes && yaml.Unmarshal([]byte(header), &root) == nil && len(root.Content) == 1 &&
		root.Content[0].Kind == yaml.MappingNode {
		values.add("", root.Content[0], 0)
		values.lift(root.Content[0])
		return values
	}
	return frontLines(header)
}

// frontLines reads lines "name: value" and "name = value", and [tables] before them.
func frontLines(header string) front {
	values, isHeader := front{}, true
	table, last := "", ""
	for line := range strings.Lines(header) {
		text := strings.TrimSpace(line)
		at := strings.IndexAny(text, ":=")
		switch {
		case text == "" || text[0] == '#':
		case text[0] == '[' && table+last == "" || text[0] == '[' && at < 0:
			table = plainName(strings.Trim(text, "[]"))
		case line[0] == ' ' || line[0] == '\t' || text[0] == '-':
			// It belongs to the name before it, of which only the audience must not be lost.
			if strings.HasSuffix(last, "audience") || strings.Contains(plainName(text), "audience") {
				values["audience"] = unreadValue
			}
		case at < 0:
			isHeader = false
		default:
			last = table + plainName(text[:at])
			values[last] = frontText(text[at+1:])
		}
	}
	if !isHeader && values.audience() == "" {
		return nil
	}
	return values
}

// frontText reads a value of one line: a text in quotes or without, or a list of one.
func frontText(value string) string {
	value = strings.TrimSpace(value)
	if inner, ok := strings.CutPrefix(value, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok && !strings.Contains(inner, ",") {
			value = strings.TrimSpace(inner)
		}
	}
	return strings.Trim(value, `"'`)
}

// add adds a value and those in it. Of an alias only a plain value is followed: others can be of any size.
func (f front) add(name string, node *yaml.Node, depth int) {
	if node.Kind == yaml.AliasNode && node.Alias != nil && node.Alias.Kind == yaml.ScalarNode {
		node = node.Alias
	}
	isAudience := strings.HasSuffix(name, "audience")
	if depth > maxFrontDepth {
		return
	}
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag != "!!null" {
			f[name] = strings.TrimSpace(node.Value)
		}
	case yaml.SequenceNode:
		var texts []string
		for _, item := range node.Content {
			if item.Kind == yaml.ScalarNode {
				texts = append(texts, strings.TrimSpace(item.Value))
			} else if inner := (front{}); item.Kind == yaml.MappingNode {
				inner.add("", item, depth+1)
				texts = append(texts, inner.first("name", "email", "id"))
			}
		}
		if f[name] = strings.Join(nonEmpty(texts...), "\n"); f[name] == "" && isAudience {
			f[name] = unreadValue
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			f.add(name+plainName(node.Content[i].Value), node.Content[i+1], depth+1)
		}
		if name != "" && f[name] == "" {
			f[name] = f[name+"name"] // author: {name: Petra}
		}
		if isAudience && !limit.IsAudienceSlug(f[name]) {
			f[name] = unreadValue
		}
	case yaml.AliasNode:
		if isAudience {
			f[name] = unreadValue
		}
	case yaml.DocumentNode:
	}
}

// frontGroups are names that say nothing of the values in them.
var frontGroups = wordSet(`meta metadata provenance properties params attributes document frontmatter extra`)

// lift adds the values of such groups by their own names, where the header has none of that name.
func (f front) lift(root *yaml.Node) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		group := root.Content[i+1]
		if !frontGroups[plainName(root.Content[i].Value)] || group.Kind != yaml.MappingNode {
			continue
		}
		inner := front{}
		inner.add("", group, 1)
		for name, value := range inner {
			if f[name] == "" {
				f[name] = value
			}
		}
	}
}
