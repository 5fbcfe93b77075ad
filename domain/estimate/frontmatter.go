package estimate

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// maxFrontLines and maxFrontBytes bound the header of a document.
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

// isOKF reports whether the header is that of the Open Knowledge Format, in which each text has a type.
func (f front) isOKF() bool {
	return f["type"] != "" && f.first("generatedat", "generatedby", "description", "resource") != ""
}

// frontMatter splits off the header of a text. What is no YAML is read line by line: many write a colon in a title.
func frontMatter(text string) (values front, rest string) {
	line, after := firstLine(text)
	if strings.TrimRight(line, " ") != "---" {
		return nil, text
	}
	header := after
	for left := maxFrontLines; left > 0 && after != ""; left-- {
		end := len(header) - len(after)
		line, after = firstLine(after)
		if t := strings.TrimRight(line, " "); t != "---" && t != "..." {
			continue
		}
		if end > maxFrontBytes {
			return nil, text
		}
		return frontValues(header[:end]), after
	}
	return nil, text
}

func frontValues(header string) front {
	values := front{}
	var root yaml.Node
	if yaml.Unmarshal([]byte(header), &root) == nil && len(root.Content) == 1 {
		values.add("", root.Content[0], 0)
		return values
	}
	for line := range strings.Lines(header) {
		if name, value, ok := strings.Cut(line, ":"); ok && len(line) < 1000 && !strings.HasPrefix(name, " ") {
			values[plainName(name)] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return values
}

// add adds a value and those in it. Aliases are not followed.
func (f front) add(name string, node *yaml.Node, depth int) {
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
		f[name] = strings.Join(nonEmpty(texts...), "\n")
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			f.add(name+plainName(node.Content[i].Value), node.Content[i+1], depth+1)
		}
		if name != "" && f[name] == "" {
			f[name] = f[name+"name"] // author: {name: Petra}
		}
	case yaml.DocumentNode, yaml.AliasNode:
	}
}
